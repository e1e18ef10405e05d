"""The core process, which an engine starts (frontend/child.py). Its orders come on stdin, then over the channel.

It ends when its parent does, ignores SIGINT (the parent coordinates Ctrl-C), and on SIGTERM ends after the step in progress.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable

import msgspec

from octavo.config.engine import EngineConfig
from octavo.engine.core.build import BuiltCore, build_core
from octavo.engine.core.engine_core import EngineCore
from octavo.engine.wire.channel import CoreChannel, decode_start
from octavo.engine.wire.frames import ChannelError
from octavo.engine.wire.messages import (
    AbortChoices,
    AddRequest,
    Answer,
    Beat,
    CallFailed,
    CoreFailed,
    CoreReady,
    MemoryRead,
    ReadMemory,
    Reconfigure,
    Reconfigured,
    SetTokens,
    ToCore,
)
from octavo.errors import ConfigError, LoadError, OctavoError, not_enough_memory
from octavo.log import get_logger, setup_logging
from octavo.streams import hold_any_text, never_wait, open_missing_streams

HEARTBEAT_S = 1.0
MAX_START_BYTES = 2**20
_PR_SET_PDEATHSIG = 1

_logger = get_logger(__name__)


class CoreLoop:
    """Receive, step, reply, until told to stop or the parent is gone."""

    def __init__(self, core: EngineCore, channel: CoreChannel, parent_pid: int) -> None:
        self._core = core
        self._channel = channel
        self._parent_pid = parent_pid
        self._stopping = False

    def stop(self) -> None:
        """End after the step in progress. May be called from a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Block on the channel while idle; while there is work, look at it between steps without waiting.

        Raises ChannelError when the parent does not read, WorkerBroken when the device is.
        """
        core, channel = self._core, self._channel
        while not self._stopping and os.getppid() == self._parent_pid:
            for message in channel.receive(0.0 if core.has_work() else HEARTBEAT_S):
                self._handle(message)
            # Without work (idle, or all was just aborted) the step is empty: a heartbeat with the gauges as they are now.
            channel.send(core.step())
            report = core.tune()
            if report is not None:
                channel.send(Reconfigured(None, report))

    def _handle(self, message: ToCore) -> None:
        if isinstance(message, AddRequest):
            self._core.add_request(message.request)
        elif isinstance(message, SetTokens):
            self._core.set_tokens(message.table)
        elif isinstance(message, AbortChoices):
            for request_id, choice in message.choices:
                self._core.abort(request_id, choice)
        elif isinstance(message, Reconfigure | ReadMemory):
            self._channel.send(self._answer(message))
        else:
            self.stop()

    def _answer(self, question: Reconfigure | ReadMemory) -> Answer:
        """What was asked for, or why not; whatever goes wrong, the core goes on."""
        call_id = question.call_id
        try:
            if isinstance(question, ReadMemory):
                return MemoryRead(call_id, self._core.memory_report())
            return Reconfigured(call_id, self._core.reconfigure(question.changes))
        except ConfigError as error:
            return CallFailed(call_id, "config", error.message, error.param)
        except Exception as error:
            _logger.exception("the engine core could not answer")
            return CallFailed(call_id, "internal", f"{type(error).__name__}: {error}", None)


class Pulse:
    """Speaks for the loop's thread while that is in a long step, as long as it computes there.

    So a silent core is one that stands still, and however long a step takes, nobody has to guess which it is.
    """

    def __init__(self, channel: CoreChannel) -> None:
        """Made on the thread that it speaks for."""
        self._channel = channel
        # Where a thread has no clock that others can read, the clock of the whole process stands still only with all of it.
        by_thread = hasattr(time, "pthread_getcpuclockid")
        self._clock = time.pthread_getcpuclockid(threading.get_ident()) if by_thread else time.CLOCK_PROCESS_CPUTIME_ID
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="octavo-pulse")
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        num_sent, cpu_s = self._channel.num_sent, time.clock_gettime(self._clock)
        while not self._stopped.wait(HEARTBEAT_S):
            before, before_s = num_sent, cpu_s
            num_sent, cpu_s = self._channel.num_sent, time.clock_gettime(self._clock)
            if num_sent == before and cpu_s > before_s:
                try:
                    self._channel.send(Beat())
                except ChannelError:
                    return  # the loop will notice it, too
                num_sent += 1


def main(make_core: Callable[[EngineConfig], BuiltCore] = build_core) -> int:
    """Run a core process to its end; returns the exit code. `make_core` makes the core (tests bring their own worker)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    open_missing_streams()
    hold_any_text()
    never_wait()
    try:
        start = decode_start(sys.stdin.buffer.read(MAX_START_BYTES))
    except (msgspec.DecodeError, ValueError) as error:
        print(f"a core process is started by an engine, which tells it what to serve on stdin ({error})", file=sys.stderr)
        return ConfigError.exit_code
    _die_with_parent()
    setup_logging(start.log_level, style=start.log_format)
    channel = CoreChannel(socket.socket(fileno=start.descriptor))
    pulse: Pulse | None = None
    try:
        built = _built(make_core, start.config, channel)
        if built is None:
            return ConfigError.exit_code
        # What was made until now lives for ever: the garbage collector need not look at it again during steps.
        gc.collect()
        gc.freeze()
        loop = CoreLoop(built.core, channel, start.parent_pid)
        signal.signal(signal.SIGTERM, lambda _number, _frame: loop.stop())
        channel.send(CoreReady(built.resolved.config, built.weights_version, built.description, built.files))
        pulse = Pulse(channel)
        loop.run()
    except OctavoError as error:
        _logger.critical("the engine core ends: %s", error)
        return error.exit_code
    finally:
        if pulse is not None:
            pulse.stop()
        channel.close()
    return 0


def _built(make_core: Callable[[EngineConfig], BuiltCore], config: EngineConfig, channel: CoreChannel) -> BuiltCore | None:
    """The core; or None after the parent was told why there is none."""
    try:
        return make_core(config)
    except ConfigError as error:
        channel.send(CoreFailed("config", error.message, error.param))
    except LoadError as error:
        channel.send(CoreFailed("load", error.message, error.param))
    except MemoryError as error:
        channel.send(CoreFailed("load", not_enough_memory(error), None))
    except Exception as error:
        _logger.exception("the engine core could not be built")
        channel.send(CoreFailed("internal", f"{type(error).__name__}: {error}", None))
    return None


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends, however it ends. Beside Linux, the loop looks itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
