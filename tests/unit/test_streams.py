"""Standard streams: writing never waits, closed ones are opened, and any text can be printed whatever the locale."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.streams import MAX_KEPT_BYTES, LossyWriter

LINE = b"a line of the log\n"
NUM_LINES = 20_000


def pipe() -> tuple[int, int]:
    return os.pipe()


def sockets() -> tuple[int, int]:
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def terminal() -> tuple[int, int]:
    return pty.openpty()


def read_all(descriptor: int) -> bytes:
    os.set_blocking(descriptor, False)
    found = b""
    try:
        while data := os.read(descriptor, 1 << 20):
            found += data
    except OSError:
        pass  # empty for now, or a terminal without a writer
    return found


@pytest.mark.parametrize("make", [pipe, sockets, terminal])
def test_a_reader_that_does_not_read_is_not_waited_for(make: Callable[[], tuple[int, int]]) -> None:
    reader, descriptor = make()
    writer = LossyWriter(descriptor)
    for _ in range(NUM_LINES):
        assert writer.write(LINE) == len(LINE)
    assert os.get_blocking(descriptor), "others who have inherited the descriptor would be surprised"
    found = read_all(reader)
    for _ in range(10):  # a terminal takes little at a time
        writer.write(b"the reader is back\n")
        found += read_all(reader)
    os.close(reader)
    text = found.replace(b"\r\n", b"\n").decode()
    assert text.startswith(LINE.decode()) and text.endswith("the reader is back\n")
    (notice,) = [line for line in text.splitlines() if "were lost here" in line]
    assert int(notice.split()[0]) + text.count(LINE.decode()) == NUM_LINES
    assert len(text) >= MAX_KEPT_BYTES


@pytest.mark.parametrize("make", [pipe, sockets])
def test_a_reader_that_has_gone_is_no_error(make: Callable[[], tuple[int, int]]) -> None:
    reader, descriptor = make()
    writer = LossyWriter(descriptor)
    os.close(reader)
    for _ in range(3):
        assert writer.write(LINE) == len(LINE)


def test_files_are_shared_with_other_writers(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        first, second = LossyWriter(file.fileno()), LossyWriter(os.dup(file.fileno()))
        for writer in (first, second, first):
            writer.write(LINE)
    assert (tmp_path / "log").read_bytes() == 3 * LINE


OPEN_STREAMS = """
import os, sys
from octavo.streams import never_wait, open_missing_streams
open_missing_streams()
never_wait()
result = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
assert result > 2, result
print("out"), print("err", file=sys.stderr), sys.stdin.read()
os.write(result, b"fine")
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_opened_so_that_no_file_takes_their_place(closed: str, tmp_path: Path) -> None:
    result = tmp_path / "result"
    command = f'"$@" {closed}'
    subprocess.run(["sh", "-c", command, "sh", sys.executable, "-c", OPEN_STREAMS, str(result)], stdin=subprocess.DEVNULL)
    assert result.read_bytes() == b"fine"


@pytest.mark.parametrize(
    ("env", "printed"),
    [
        ({"LC_ALL": "POSIX"}, "日".encode()),
        ({"LANG": "C", "LC_ALL": ""}, "日".encode()),
        ({"PYTHONIOENCODING": "ascii"}, b"\\u65e5"),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, b"\\u65e5"),
        ({"PYTHONIOENCODING": "latin-1"}, b"\\u65e5"),
    ],
)
def test_text_that_the_locale_cannot_hold_is_escaped(env: dict[str, str], printed: bytes) -> None:
    program = (
        "from octavo.streams import hold_any_text; import sys; hold_any_text(); "
        "print('\\u65e5'); print('\\u65e5', file=sys.stderr); print('/tmp/\\udce9'); print(ascii(sys.stdin.read()))"
    )
    is_ascii = env.get("PYTHONIOENCODING") != "latin-1"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **env}, input="é".encode(), capture_output=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0] == done.stderr.strip() == printed
    assert lines[1] == b"/tmp/\xe9", "a file's name is printed as it is"
    assert not is_ascii or lines[2] == b"'\\xe9'"
