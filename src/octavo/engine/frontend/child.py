"""CoreChild: one core process with the channel to it, from start to end. Its successor is another one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from octavo.config.engine import EngineConfig
from octavo.engine.wire.channel import encode_start
from octavo.engine.wire.messages import CoreFailed, CoreReady, StartCore
from octavo.engine.wire.parent_channel import ParentChannel
from octavo.errors import ConfigError, EngineDeadError, LoadError, OctavoError
from octavo.log import style_in_force

_PROGRAM = """import sys
sys.path = [*filter(None, sys.path), {home!r}]
from octavo.engine.core.process import main
sys.exit(main())"""
CORE_COMMAND = (sys.executable, "-c", _PROGRAM.format(home=str(Path(__file__).parents[3])))
"""Not `-m`, which would look for modules in the working folder first: a user's random.py there is not ours."""

_LAST_WORDS_S = 1.0
"""How long to look for the message of a process that has ended already."""


class CoreFailedError(EngineDeadError):
    """The core process failed inside before it could serve; the message is for the log, for it may say anything."""


class CoreChild:
    """The process and its channel. `exited` is set, on the event loop, when the process has ended."""

    def __init__(self, config: EngineConfig, command: Sequence[str], log_level: str) -> None:
        """Start the process on the running loop's thread: the kernel ties a child's life to the thread that made it.

        Raises OSError, or RuntimeError when no thread can be had; nothing is left behind then.
        """
        self.channel = ParentChannel()
        self.exited = asyncio.Event()
        try:
            self._process = self._start(command)
            self._finalizer = weakref.finalize(self, _kill, self._process, os.getpid())
            start = StartCore(self.channel.core_end.fileno(), os.getpid(), log_level, config, style_in_force())
            self._send_start(encode_start(start))
            self.channel.core_end.close()  # the core's copy is the only one now, and its end the end of the stream
            watch = (self._process, asyncio.get_running_loop(), self.exited)
            threading.Thread(target=_watch, args=watch, daemon=True, name="octavo-core-watch").start()
        except BaseException:
            if hasattr(self, "_finalizer"):
                self._finalizer()
                self._process.wait()
            self.channel.close()
            raise

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        # A session of its own keeps the terminal's Ctrl-C away from it; the parent decides when it ends.
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(self.channel.core_end.fileno(),),
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_cause(self) -> str:
        """How the ended process ended, in words."""
        code = self._process.returncode
        return f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"

    async def ready(self, timeout_s: float) -> CoreReady:
        """Wait until the core serves. Raises what kept it from that: ConfigError, LoadError or EngineDeadError."""
        receive = asyncio.ensure_future(self.channel.receive())
        exited = asyncio.ensure_future(self.exited.wait())
        try:
            await asyncio.wait({receive, exited}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if exited.done() and not receive.done():
                await asyncio.wait({receive}, timeout=_LAST_WORDS_S)
            if not receive.done():
                state = self.exit_cause() if exited.done() else f"was not ready after {timeout_s:g} s"
                raise EngineDeadError(f"the engine core {state}; its messages stand above")
            message = receive.result()
        finally:
            receive.cancel()
            exited.cancel()
        if isinstance(message, CoreFailed):
            raise _error_of(message)
        if not isinstance(message, CoreReady):
            raise EngineDeadError("the engine core spoke before it was ready")
        return message

    def kill(self) -> None:
        """End it at once."""
        _kill(self._process, os.getpid())

    async def stop(self, timeout_s: float) -> None:
        """Wait for an end that was asked for; after timeout_s seconds terminate, then kill."""
        stages: tuple[Callable[[], None] | None, ...] = (None, self._process.terminate, self._process.kill)
        for end in stages:
            if self.exited.is_set():
                break
            if end is not None:
                end()
            try:
                await asyncio.wait_for(self.exited.wait(), timeout_s)
            except asyncio.TimeoutError:
                continue
        self.close()

    def close(self) -> None:
        """Kill it if it still runs, and give back the channel."""
        self._finalizer()
        self.channel.close()

    def _send_start(self, start: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended already; `ready` will say so
            self._process.stdin.write(start)  # well below the size of a pipe: does not block
            self._process.stdin.close()


def _watch(process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, exited: asyncio.Event) -> None:
    """Thread: reap the process, then tell the loop."""
    process.wait()
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(exited.set)


def _kill(process: subprocess.Popen[bytes], parent_pid: int) -> None:
    """Not in a copy of the parent that was forked: the core is not its own."""
    if os.getpid() == parent_pid and process.poll() is None:
        process.kill()


def _error_of(message: CoreFailed) -> OctavoError:
    if message.kind == "config":
        return ConfigError(message.message, param=message.param)
    if message.kind == "load":
        return LoadError(message.message, param=message.param)
    return CoreFailedError(f"the engine core could not start: {message.message}")
