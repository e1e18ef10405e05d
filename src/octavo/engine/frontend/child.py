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

from octavo.config.engine import EngineConfig
from octavo.engine.wire.channel import encode_start
from octavo.engine.wire.messages import CoreFailed, CoreReady, StartCore
from octavo.engine.wire.parent_channel import ParentChannel
from octavo.errors import ConfigError, EngineDeadError, LoadError, OctavoError

CORE_COMMAND = (sys.executable, "-m", "octavo.engine.core.process")

_LAST_WORDS_S = 1.0
"""How long to look for the message of a process that has ended already."""


class CoreChild:
    """The process and its channel. `exited` is set, on the event loop, when the process has ended."""

    def __init__(self, config: EngineConfig, command: Sequence[str], log_level: str) -> None:
        """Start the process on the running loop's thread: the kernel ties a child's life to the thread that made it."""
        self.channel = ParentChannel()
        self.exited = asyncio.Event()
        core_end = self.channel.core_end
        start = encode_start(StartCore(core_end.fileno(), os.getpid(), log_level, config))
        try:
            # A session of its own keeps the terminal's Ctrl-C away from it; the parent decides when it ends.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(core_end.fileno(),),
            )
        except OSError as error:
            self.channel.close()
            raise EngineDeadError(f"the engine core cannot be started: {error}") from None
        core_end.close()  # the core's copy is the only one now, and its end the end of the stream
        self._finalizer = weakref.finalize(self, _kill, self._process)
        self._send_start(start)
        loop = asyncio.get_running_loop()
        threading.Thread(target=_watch, args=(self._process, loop, self.exited), daemon=True, name="octavo-core-watch").start()

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
        _kill(self._process)

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


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()


def _error_of(message: CoreFailed) -> OctavoError:
    if message.kind == "config":
        return ConfigError(message.message, param=message.param)
    if message.kind == "load":
        return LoadError(message.message, param=message.param)
    return EngineDeadError(f"the engine core could not start: {message.message}")
