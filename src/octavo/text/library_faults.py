"""Faults of the `tokenizers` library as errors of octavo's own."""

from __future__ import annotations


def is_fault(error: BaseException) -> bool:
    """Whether `error` came out of a library as a failure, and is no wish to end.

    A panic of Rust code arrives as pyo3_runtime.PanicException, which is a BaseException, so that `except Exception` lets it
    through; it cannot be imported either.
    """
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def reason(error: BaseException) -> str:
    """What a library said, in one line of a bounded length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."
