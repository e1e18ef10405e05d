"""Faults of the `tokenizers` library as errors of octavo's own."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_STDERR = 2
_one_at_a_time = threading.Lock()


def is_fault(error: BaseException) -> bool:
    """Whether `error` came out of a library as a failure, and is no wish to end.

    A panic of Rust code arrives as pyo3_runtime.PanicException, which is a BaseException, so that `except Exception` lets it
    through; it cannot be imported either.
    """
    return isinstance(error, Exception) or _is_panic(error)


def reason(error: BaseException) -> str:
    """What a library said, in one line of a bounded length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


@contextmanager
def quiet_panics() -> Iterator[None]:
    """Within it, the report that Rust code writes to stderr before its panic becomes an exception is left out.

    The report cannot be turned off from Python: stderr goes to a file meanwhile, and all else that was written is handed on.
    For loading alone: it holds for the whole process, and one thread at a time.
    """
    with _one_at_a_time:
        try:
            stderr = os.dup(_STDERR)
        except OSError:  # it is closed: nothing is shown
            yield
            return
        panic: BaseException | None = None
        with tempfile.TemporaryFile() as written:
            try:
                os.dup2(written.fileno(), _STDERR)
                yield
            except BaseException as error:
                panic = error if _is_panic(error) else None
                raise
            finally:
                os.dup2(stderr, _STDERR)
                written.seek(0)
                text = written.read()
                with suppress(OSError):
                    os.write(stderr, text if panic is None else _without_report(text, str(panic)))
                os.close(stderr)


def _is_panic(error: BaseException) -> bool:
    return type(error).__name__ == "PanicException"


def _without_report(text: bytes, message: str) -> bytes:
    head, trace = (
        rb"\n?thread '[^\n]*panicked at [^\n]*\n",
        rb"\n(stack backtrace:\n( [^\n]*\n)*)?(note: [^\n]*BACKTRACE[^\n]*\n)?",
    )
    return re.sub(head + re.escape(message.encode()) + trace, b"", text)
