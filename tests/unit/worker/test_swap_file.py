"""The swap file: private, bound to one engine, gone afterwards; foreign files are left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.errors import ConfigError
from octavo.worker.swap_file import HEADER_BYTES, SwapFile


def test_the_file_is_private_sparse_and_removed_on_close(tmp_path: Path) -> None:
    path = tmp_path / "swap"
    file = SwapFile(str(path), 2**20)
    status = path.stat()
    assert status.st_mode & 0o777 == 0o600 and status.st_size == HEADER_BYTES + 2**20
    assert status.st_blocks * 512 < 2**16, "room is taken as slots are written"
    file.close()
    file.close()
    assert not path.exists()


def test_the_file_goes_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "swap"
    code = f"from octavo.worker.swap_file import SwapFile; file = SwapFile({str(path)!r}, 4096); assert file.path.exists()"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert not path.exists()


def test_what_a_killed_engine_left_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "swap"
    code = f"import os; from octavo.worker.swap_file import SwapFile; SwapFile({str(path)!r}, 2**20); os.kill(os.getpid(), 9)"
    # The name is bound so that nothing is collected before the end.
    subprocess.run([sys.executable, "-c", code.replace("; SwapFile(", "; file = SwapFile(")], check=False)
    assert path.exists()
    file = SwapFile(str(path), 4096)
    assert path.stat().st_size == HEADER_BYTES + 4096
    file.close()
    assert not path.exists()


def test_the_file_grows_and_shrinks_with_its_content(tmp_path: Path) -> None:
    path = tmp_path / "swap"
    file = SwapFile(str(path), 2**20)
    os.pwrite(file.descriptor, b"kept", HEADER_BYTES + 2**12)
    file.grow(2**22)
    assert path.stat().st_size == HEADER_BYTES + 2**22
    with pytest.raises(ConfigError, match="the disk has") as caught:
        file.grow(2**60)
    assert caught.value.param == "swap_space" and path.stat().st_size == HEADER_BYTES + 2**22
    file.shrink(2**13)
    assert path.stat().st_size == HEADER_BYTES + 2**13 and os.pread(file.descriptor, 4, HEADER_BYTES + 2**12) == b"kept"
    file.close()


def test_a_file_in_use_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "swap"
    file = SwapFile(str(path), 4096)
    with pytest.raises(ConfigError, match="in use by another engine") as caught:
        SwapFile(str(path), 4096)
    assert caught.value.param == "swap_path" and path.exists()
    file.close()


def test_a_foreign_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "letters.txt"
    path.write_text("dear all")
    with pytest.raises(ConfigError, match="no swap file"):
        SwapFile(str(path), 4096)
    assert path.read_text() == "dear all"


def test_links_folders_and_missing_folders_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"")
    link = tmp_path / "link"
    link.symlink_to(target)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (link, fifo, tmp_path, tmp_path / "no" / "swap"):
        with pytest.raises(ConfigError, match="--swap-path"):
            SwapFile(str(path), 4096)
    assert target.exists() and fifo.exists()


def test_more_than_the_disk_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "swap"
    with pytest.raises(ConfigError, match="lower --swap-space") as caught:
        SwapFile(str(path), 2**60)
    assert caught.value.param == "swap_space" and not path.exists()


def test_a_name_that_belongs_to_another_file_by_now_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "swap"
    file = SwapFile(str(path), 4096)
    path.unlink()
    path.write_text("new owner")
    file.close()
    assert path.read_text() == "new owner"
