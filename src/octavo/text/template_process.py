"""TemplateProcesses: chat templates rendered in processes that can be killed.

A template is a program that came with the model, and Jinja can neither stop it nor bound what it takes. So it runs in a process
with a limit on memory, and is killed when its time is over. An idle process is kept: a rendering then costs one message each
way. There are a few, so that one slow rendering does not hold up the next.
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
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from octavo.text.template_child import ANSWER, KINDS, LENGTH
from octavo.text.template_render import MAX_RENDERED_CHARACTERS, TemplateFailed

RENDER_S = 5.0
START_S = 60.0
MAX_PROCESSES = 4
MAX_ANSWER_BYTES = 4 * MAX_RENDERED_CHARACTERS
_PROGRAM = """import sys
sys.path = [*filter(None, sys.path), {home!r}]
from octavo.text.template_child import main
main()"""
_COMMAND = (sys.executable, "-c", _PROGRAM.format(home=str(Path(__file__).parents[2])))


class _Ended(Exception):
    """The process closed its output: it ended, or was killed."""


class _TooLate(Exception):
    """The time is over."""


class _Process:
    """One process and its two pipes. Not for several threads at once, but `kill` may come from any."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        # A session of its own keeps the terminal's Ctrl-C away from it.
        self._process = subprocess.Popen(
            _COMMAND,
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
        self._first: dict[str, str] | None = dict(sources)

    def ask(self, request: tuple[Any, ...], seconds: float) -> tuple[str, str]:
        """Kind and text of the answer. Raises _Ended or _TooLate; the process is of no more use then."""
        if self._first is not None:
            self._exchange(self._first, START_S)
            self._first = None
        return self._exchange(request, seconds)

    def kill(self) -> None:
        self._finalizer()

    def _exchange(self, request: Any, seconds: float) -> tuple[str, str]:
        end_s = time.monotonic() + seconds
        content = marshal.dumps(request)
        self._write(LENGTH.pack(len(content)) + content, end_s)
        kind, length = ANSWER.unpack(self._read(ANSWER.size, end_s))
        if kind >= len(KINDS) or length > MAX_ANSWER_BYTES:
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


class TemplateProcesses:
    """A Renderer (see template_render) over up to MAX_PROCESSES processes. Safe to use from several threads.

    render_s  seconds that one rendering may take
    """

    def __init__(self, sources: Mapping[str, str], *, render_s: float = RENDER_S) -> None:
        self._sources = dict(sources)
        self._render_s = render_s
        self._slots = threading.BoundedSemaphore(MAX_PROCESSES)
        self._lock = threading.Lock()
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()
        self._owner = os.getpid()
        self._closed = False

    def render(self, name: str, variables: Mapping[str, Any], now: datetime) -> str:
        if not self._slots.acquire(timeout=MAX_PROCESSES * self._render_s):
            raise TemplateFailed("failed", "the chat template is busy with other requests; try again later")
        try:
            kind, text = self._ask((name, variables, now.isoformat(), int(2 * self._render_s) + 1))
        finally:
            self._slots.release()
        if kind != "text":
            raise TemplateFailed(kind, text)
        return text

    def warm(self) -> None:
        """Start a process without waiting for it."""
        with self._lock:
            if not self._idle and not self._busy and not self._closed:
                with suppress(OSError):  # the first rendering will say so
                    self._idle.append(_Process(self._sources))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            processes = [*self._idle, *self._busy]
            self._idle.clear()
        for process in processes:
            process.kill()

    def _ask(self, request: tuple[Any, ...]) -> tuple[str, str]:
        process = self._take()
        try:
            answer = process.ask(request, self._render_s)
        except _TooLate:
            reason = f"the chat template took longer than {self._render_s:g} s; send fewer or shorter messages"
            raise TemplateFailed("failed", self._lost(process, reason)) from None
        except _Ended:
            reason = "the process that renders the chat template ended; the template may need too much memory"
            raise TemplateFailed("failed", self._lost(process, reason)) from None
        except BaseException:
            self._lost(process, "")
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
                raise TemplateFailed("failed", "the engine is shut down")
            if os.getpid() != self._owner:  # a forked copy of this process needs processes of its own
                self._idle, self._busy, self._owner = [], set(), os.getpid()
            try:
                process = self._idle.pop() if self._idle else _Process(self._sources)
            except OSError as error:
                raise TemplateFailed("failed", f"no process for the chat template could be started ({error})") from None
            self._busy.add(process)
            return process

    def _lost(self, process: _Process, reason: str) -> str:
        """Do away with a process in an unknown state; returns the reason, or that the engine was shut down."""
        with self._lock:
            self._busy.discard(process)
            closed = self._closed
        process.kill()
        return "the engine is shut down" if closed else reason
