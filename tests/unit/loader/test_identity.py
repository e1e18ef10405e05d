"""Identity of opened files: equal while they are what was opened, and a sentence when one is not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.checkpoints import open_checkpoint

from octavo.loader.identity import EDGE_BYTES, FileIdentity, changed_file, identify

WriteGguf = Callable[..., Path]
WriteFolder = Callable[..., Path]


@pytest.fixture
def opened(tmp_path: Path) -> FileIdentity:
    """A file longer than both edges together."""
    path = tmp_path / "weights"
    path.write_bytes(bytes(3 * EDGE_BYTES))
    return identify(path)


def rewrite(path: Path, content: bytes) -> None:
    """New content, old time of change: what `cp -p` and some archives do."""
    status = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_an_untouched_file_is_what_was_opened(opened: FileIdentity) -> None:
    assert changed_file([opened]) is None


@pytest.mark.parametrize("place", [0, EDGE_BYTES - 1, 2 * EDGE_BYTES, 3 * EDGE_BYTES - 1])
def test_other_bytes_at_either_end_are_another_file_even_with_the_old_time(opened: FileIdentity, place: int) -> None:
    content = bytearray(3 * EDGE_BYTES)
    content[place] = 1
    rewrite(Path(opened.path), bytes(content))
    assert changed_file([opened]) == f"{opened.path} was replaced"


def test_another_time_of_change_is_another_file(opened: FileIdentity) -> None:
    os.utime(opened.path, ns=(1, 1))
    assert changed_file([opened]) == f"{opened.path} was replaced"


def test_a_truncated_file_is_another_file(opened: FileIdentity) -> None:
    os.truncate(opened.path, 2 * EDGE_BYTES)
    assert changed_file([opened]) == f"{opened.path} was replaced"


def test_a_missing_file_is_named(opened: FileIdentity) -> None:
    os.unlink(opened.path)
    assert changed_file([opened]) == f"{opened.path} is gone"


def test_a_gguf_checkpoint_knows_its_file(write_gguf: WriteGguf) -> None:
    path = write_gguf()
    checkpoint = open_checkpoint(path)
    assert [identity.path for identity in checkpoint.files] == [str(path)]
    assert changed_file(checkpoint.files) is None
    path.write_bytes(path.read_bytes() + b"x")
    assert changed_file(checkpoint.files) == f"{path} was replaced"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json", "model-00002-of-00002.safetensors"])
def test_a_folder_checkpoint_knows_every_file_it_read(write_folder: WriteFolder, name: str) -> None:
    folder = write_folder(shards=2)
    checkpoint = open_checkpoint(folder)
    assert changed_file(checkpoint.files) is None
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    assert changed_file(checkpoint.files) == f"{folder / name} was replaced"
