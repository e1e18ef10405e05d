"""Launchers: who makes the device's calls: a thread of its own, so that Python goes on meanwhile, or the caller itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

Result = TypeVar("Result")


class Launcher(Protocol[Result]):
    """One call at a time: `start` it, then `wait` for it."""

    def start(self, call: Callable[[], Result]) -> None:
        """Begin a call."""

    def wait(self) -> Result:
        """The result of the call that was started. Raises what the call raised."""

    def drop(self) -> None:
        """Return when no call is in progress, whatever came of it: for one that nobody waits for any more."""


class InlineLauncher(Generic[Result]):
    """Makes the call when it is waited for: the plain twin of ThreadLauncher, without the cost of changing threads."""

    def start(self, call: Callable[[], Result]) -> None:
        self._call = call

    def wait(self) -> Result:
        return self._call()

    def drop(self) -> None:
        """Nothing is in progress outside `wait`."""


class ThreadLauncher(Generic[Result]):
    """Makes the calls on a thread of its own, which ends with the launcher.

    `start` returns when the thread has the call in hand. Without that the thread would have to wait until Python next gives up
    the interpreter lock, by which time there is nothing left to do meanwhile.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], Result] | None] = SimpleQueue()
        self._taken: SimpleQueue[None] = SimpleQueue()
        self._done: SimpleQueue[tuple[Result | None, BaseException | None]] = SimpleQueue()
        self._is_running = False
        # The thread knows the queues and not the launcher, or neither would ever go.
        queues = (self._calls, self._taken, self._done)
        threading.Thread(target=_make_calls, args=queues, name="octavo-device", daemon=True).start()

    def start(self, call: Callable[[], Result]) -> None:
        self._is_running = True
        self._calls.put(call)
        self._taken.get()

    def wait(self) -> Result:
        result, error = self._done.get()
        self._is_running = False
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # a call that raised nothing has a result

    def drop(self) -> None:
        if self._is_running:
            self._done.get()
            self._is_running = False

    def __del__(self) -> None:
        self._calls.put(None)


def _make_calls(
    calls: SimpleQueue[Callable[[], Result] | None],
    taken: SimpleQueue[None],
    done: SimpleQueue[tuple[Result | None, BaseException | None]],
) -> None:
    while True:
        call = calls.get()
        if call is None:
            return
        taken.put(None)
        try:
            done.put((call(), None))
        except BaseException as error:  # it is raised where the result is waited for
            done.put((None, error))
        del call
