"""Guard: an engine belongs to the process that made it, and to one thread at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from octavo.errors import EngineDeadError

_Method = TypeVar("_Method", bound=Callable[..., Any])


class Guard:
    """A context manager around what must not run twice at once, nor in a forked copy of the process.

    what  is guarded, for the message: "LLM"
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid = os.getpid()
        self._lock = threading.RLock()

    @property
    def is_foreign(self) -> bool:
        """Whether this is a copy of the process that made it: the threads that compute did not come along."""
        return os.getpid() != self._pid

    def check_process(self) -> None:
        """Raise EngineDeadError in a copy of the process that made it."""
        if self.is_foreign:
            raise EngineDeadError(
                f"this {self._what} was made in process {self._pid} and cannot be used in process {os.getpid()}, which was "
                f"forked from it; make the {self._what} in the new process, or start that with multiprocessing's method 'spawn'"
            )

    def __enter__(self) -> None:
        self.check_process()
        self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self._lock.release()


def guarded(method: _Method) -> _Method:
    """Decorator: the method runs within the guard of its object, `self._guard`."""

    @wraps(method)
    def within(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._guard:
            return method(self, *args, **kwargs)

    return cast(_Method, within)
