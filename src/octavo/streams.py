"""Standard streams: they are always there, they hold any text, and a server never waits for whoever reads them."""

from __future__ import annotations

import codecs
import io
import os
import select
import socket
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

MAX_KEPT_BYTES = 64 * 1024
"""What nobody has read yet, beside the pipe's own buffer. Beyond it lines are lost, and counted."""

_ERRORS = "octavo-escape"


def open_missing_streams() -> None:
    """Open /dev/null for each of the descriptors 0, 1 and 2 that is closed.

    Otherwise the next file or socket takes that number, and whatever is printed lands in it. To be called first.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
            os.set_inheritable(opened, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))


def hold_any_text() -> None:
    """Whatever the locale: print what it cannot hold as an escape, and read UTF-8 where it says ASCII."""
    codecs.register_error(_ERRORS, _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)
    if isinstance(sys.stdin, io.TextIOWrapper):
        is_ascii = codecs.lookup(sys.stdin.encoding).name == "ascii"
        sys.stdin.reconfigure(encoding="utf-8" if is_ascii else None, errors="strict")


def never_wait() -> None:
    """From now on stdout and stderr of this process drop what their reader does not take. For servers and core processes.

    A launcher often reads until the server is ready and never again; a terminal can be held with Ctrl-S.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            descriptor = stream.fileno()
        except (AttributeError, OSError, ValueError):
            continue  # a test or a notebook has put something of its own there
        with suppress(OSError):
            stream.flush()
        writer = LossyWriter(descriptor)
        wrapped = io.TextIOWrapper(writer, stream.encoding, stream.errors, write_through=True)  # type: ignore[type-var]
        setattr(sys, name, wrapped)


class LossyWriter(io.RawIOBase):
    """Writes to a descriptor without ever waiting. What does not fit is kept up to MAX_KEPT_BYTES, then lost.

    When the reader is back it is told how many lines were lost.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._send, self._release = _sender(descriptor)
        self._kept = bytearray()
        self._num_lost = 0
        self._lock = threading.RLock()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def close(self) -> None:
        """The descriptor itself stays open."""
        if not self.closed:
            self._release()
        super().close()

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        """Always takes all of data; neither a reader that has gone nor a full disk is an error."""
        with self._lock:
            self._flush_kept()
            if self._num_lost and not self._kept:
                self._kept += f"{self._num_lost} lines were lost here, because nobody read them\n".encode()
                self._num_lost = 0
                self._flush_kept()
            if len(self._kept) + len(data) > MAX_KEPT_BYTES and self._kept:
                self._num_lost += max(1, bytes(data).count(b"\n"))
            else:
                self._kept += data
                self._flush_kept()
        return len(data)

    def _flush_kept(self) -> None:
        try:
            while self._kept:
                del self._kept[: self._send(bytes(self._kept))]
        except BlockingIOError:
            return
        except OSError:
            self._kept.clear()


def _sender(descriptor: int) -> tuple[Callable[[bytes], int], Callable[[], None]]:
    """A function that writes what goes at once and returns how much that was, or raises BlockingIOError; and one to end it.

    The descriptor itself must not become non-blocking: others who have inherited it would be surprised.
    """
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISSOCK(mode):
        # Under systemd the log is a socket to the journal.
        sock = socket.socket(fileno=os.dup(descriptor))
        return lambda data: sock.send(data, socket.MSG_DONTWAIT), sock.close
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        # Opened once more it is non-blocking for us alone. Not for files: there the position in it is shared.
        with suppress(OSError):
            own = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            return lambda data: os.write(own, data), lambda: os.close(own)
    poller = select.poll()
    poller.register(descriptor, select.POLLOUT)

    def write_if_ready(data: bytes) -> int:
        if not poller.poll(0):
            raise BlockingIOError
        return os.write(descriptor, data[: select.PIPE_BUF])  # a pipe that is ready takes at least this much

    return write_if_ready, lambda: None


def _escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    """What an encoding cannot hold: bytes of file names as they were, all else as backslash escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    try:
        return error.object[error.start : error.end].encode("ascii", "surrogateescape"), error.end
    except UnicodeEncodeError:
        return codecs.backslashreplace_errors(error)
