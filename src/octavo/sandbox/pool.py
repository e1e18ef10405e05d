"""ProcessPool: requests answered by processes that can be killed.

What may neither be stopped nor bounded where it runs (a chat template is a program that came with a model, a grammar may take
for ever to look at) runs in a process with a limit on memory, and is killed when its time is over. An idle process is kept: a
request then costs one message each way. There are a few, so that one slow request does not hold up the next.
"""

from __future__ import annotations

import marshal
import os
import select
import subprocess
import sys
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from octavo.sandbox.child import ANSWER, KINDS, LENGTH

START_S = 60.0
_HOME = str(Path(__file__).parents[2])
_PROGRAM = """import sys
sys.path = [*filter(None, sys.path), {home!r}]
from {module} import main
main()"""


class NoAnswerError(Exception):
    """A request has no answer.

    cause   "late": it took too long; "ended": the process ended, perhaps for want of memory; "busy": all processes are at work;
            "closed": the pool was closed; "start": no process could be started
    detail  more about it, or ""
    """

    def __init__(self, cause: Literal["late", "ended", "busy", "closed", "start"], detail: str = "") -> None:
        super().__init__(cause, detail)
        self.cause = cause
        self.detail = detail


class _Ended(Exception):
    """The process closed its output: it ended, or was killed."""


class _TooLate(Exception):
    """The time is over."""


class _Process:
    """One process and its two pipes. Not for several threads at once, but `kill` may come from any."""

    def __init__(self, module: str, first: Any, max_answer_bytes: int) -> None:
        # A session of its own keeps the terminal's Ctrl-C away from it.
        self._process = subprocess.Popen(
            (sys.executable, "-c", _PROGRAM.format(home=_HOME, module=module)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        self._finalizer = weakref.finalize(self, _kill, self._process, os.getpid())
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        self._first, self._is_ready = first, False
        self._max_answer_bytes = max_answer_bytes

    def ask(self, request: Any, seconds: float) -> tuple[str, str]:
        """Kind and text of the answer. Raises _Ended or _TooLate; the process is of no more use then."""
        if not self._is_ready:
            self._exchange(self._first, START_S)
            self._first, self._is_ready = None, True
        return self._exchange((request, int(2 * seconds) + 1), seconds)

    def kill(self) -> None:
        self._finalizer()

    def _exchange(self, request: Any, seconds: float) -> tuple[str, str]:
        end_s = time.monotonic() + seconds
        content = marshal.dumps(request)
        self._write(LENGTH.pack(len(content)) + content, end_s)
        kind, length = ANSWER.unpack(self._read(ANSWER.size, end_s))
        if kind >= len(KINDS) or length > self._max_answer_bytes:
            raise _Ended
        return KINDS[kind], self._read(length, end_s).decode("utf-8", "surrogatepass")

    def _write(self, content: bytes, end_s: float) -> None:
        view = memoryview(content)
        while view:
            try:
                view = view[os.write(self._input, view) :]
            except BlockingIOError:
                _wait(self._input, select.POLLOUT, end_s)
            except OSError:
                raise _Ended from None

    def _read(self, size: int, end_s: float) -> bytes:
        pieces: list[bytes] = []
        while size:
            try:
                piece = os.read(self._output, size)
            except BlockingIOError:
                _wait(self._output, select.POLLIN, end_s)
                continue
            if not piece:
                raise _Ended
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


def _wait(descriptor: int, event: int, end_s: float) -> None:
    """Until the descriptor is ready, or closed. Raises _TooLate."""
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(0.0, 1000 * (end_s - time.monotonic()))):
        raise _TooLate


def _kill(process: subprocess.Popen[bytes], parent_pid: int) -> None:
    """End the process. Not in a copy of the parent that was forked: there it is not its own."""
    if os.getpid() != parent_pid:
        return
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


class ProcessPool:
    """Up to max_processes processes that run `main` of a module (see child.serve). Safe to use from several threads.

    first      what each process works with; it is sent once
    seconds    that one answer may take
    """

    def __init__(self, module: str, first: Any, *, seconds: float, max_processes: int, max_answer_bytes: int) -> None:
        self._module, self._first, self._seconds = module, first, seconds
        self._max_answer_bytes = max_answer_bytes
        self._patience_s = max_processes * seconds
        self._slots = threading.BoundedSemaphore(max_processes)
        self._lock = threading.Lock()
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()
        self._owner = os.getpid()
        self._closed = False

    def ask(self, request: Any) -> tuple[str, str]:
        """Kind and text of the answer. Raises NoAnswerError."""
        if not self._slots.acquire(timeout=self._patience_s):
            raise NoAnswerError("busy")
        try:
            return self._ask(request)
        finally:
            self._slots.release()

    def warm(self) -> None:
        """Start a process without waiting for it."""
        with self._lock:
            if not self._idle and not self._busy and not self._closed:
                with suppress(OSError):  # the first request will say so
                    self._idle.append(self._new())

    def close(self) -> None:
        with self._lock:
            self._closed = True
            processes = [*self._idle, *self._busy]
            self._idle.clear()
        for process in processes:
            process.kill()

    def _ask(self, request: Any) -> tuple[str, str]:
        process = self._take()
        try:
            answer = process.ask(request, self._seconds)
        except _TooLate:
            raise self._lost(process, NoAnswerError("late")) from None
        except _Ended:
            raise self._lost(process, NoAnswerError("ended")) from None
        except BaseException:
            self._lost(process, NoAnswerError("ended"))
            raise
        with self._lock:
            self._busy.discard(process)
            if not self._closed:
                self._idle.append(process)
                return answer
        process.kill()
        return answer

    def _take(self) -> _Process:
        """An idle process, or a new one."""
        with self._lock:
            if self._closed:
                raise NoAnswerError("closed")
            if os.getpid() != self._owner:  # a forked copy of this process needs processes of its own
                self._idle, self._busy, self._owner = [], set(), os.getpid()
            try:
                process = self._idle.pop() if self._idle else self._new()
            except OSError as error:
                raise NoAnswerError("start", str(error)) from None
            self._busy.add(process)
            return process

    def _new(self) -> _Process:
        return _Process(self._module, self._first, self._max_answer_bytes)

    def _lost(self, process: _Process, error: NoAnswerError) -> NoAnswerError:
        """Do away with a process in an unknown state; returns the error, or that the pool was closed."""
        with self._lock:
            self._busy.discard(process)
            closed = self._closed
        process.kill()
        return NoAnswerError("closed") if closed else error
