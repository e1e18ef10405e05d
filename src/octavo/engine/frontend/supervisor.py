"""Supervisor: keeps one core process running: starts it, hears it, restarts it after a crash or a hang, and stops it."""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from octavo.config.engine import EngineConfig
from octavo.engine.frontend.child import CORE_COMMAND, CoreChild
from octavo.engine.wire.messages import (
    Answer,
    CallFailed,
    CoreReady,
    FromCore,
    MemoryRead,
    Reconfigured,
    Shutdown,
    StepOutputs,
    ToCore,
)
from octavo.errors import EngineDeadError, OctavoError
from octavo.log import get_logger

SILENT_CHECKS = 2
"""Checks in a row, a second apart, that must find the core silent: if this process itself was stopped for long, its first check
comes before the messages that arrived meanwhile are read."""

_logger = get_logger(__name__)


class CoreState(enum.Enum):
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the supervisor waits before it acts, in seconds.

    start_s     for a core to be ready; loading a large model from a slow disk takes minutes
    silent_s    without a word before the core counts as unhealthy, and hung_s before it is killed; both are at least
                `steps` times the longest step seen, for one step of a large model on a slow machine may take minutes
    stop_s      per stage of stopping: asked, terminated, killed
    backoff_s   before the first restart; doubled with each further crash up to max_backoff_s. It never gives up: what kept the
                core from starting (memory, a file) may pass, and until then health says what it is
    stable_s    a core that served this long resets the count of crashes
    """

    start_s: float = 1800.0
    silent_s: float = 30.0
    hung_s: float = 600.0
    steps: float = 10.0
    stop_s: float = 5.0
    backoff_s: float = 0.05
    max_backoff_s: float = 30.0
    stable_s: float = 60.0


class Supervisor:
    """One core at a time, on the running event loop: `start`, then `watch`, finally `stop`."""

    def __init__(
        self, *, command: Sequence[str] = CORE_COMMAND, patience: Patience | None = None, log_level: str = "info"
    ) -> None:
        self._command = command
        self._patience = patience or Patience()
        self._log_level = log_level
        self._child: CoreChild | None = None
        self._task: asyncio.Task[None] | None = None
        self._heard_s = time.monotonic()
        self._longest_step_s = 0.0
        self._cause = ""
        self.state = CoreState.STARTING
        self.config: EngineConfig
        """What a restarted core is given; from `watch` on."""
        self._on_answer: Callable[[Answer], None]

    @property
    def pid(self) -> int | None:
        """Process id of the core; None while there is none."""
        return None if self._child is None else self._child.pid

    @property
    def heartbeat_age_s(self) -> float:
        """Seconds since the core's last message."""
        return time.monotonic() - self._heard_s

    async def start(self, config: EngineConfig) -> CoreReady:
        """Start the first core and wait until it serves. Raises ConfigError, LoadError or EngineDeadError."""
        return (await self._launch(config))[1]

    def watch(
        self,
        config: EngineConfig,
        on_step: Callable[[StepOutputs], None],
        on_lost: Callable[[str], None],
        on_answer: Callable[[Answer], None],
    ) -> None:
        """Begin to hear the started core, and to replace it when it is lost.

        config   resolved, as CoreReady brought it, so that a restart never changes a budget
        on_step  called with every message of a serving core
        on_lost  called with the cause when a serving core is gone, before a new one is started
        on_answer  called with every answer to a Reconfigure or ReadMemory
        """
        assert self._child is not None and self._task is None
        self.config = config
        self._on_answer = on_answer
        self._task = asyncio.create_task(self._supervise(self._child, on_step, on_lost), name="octavo-supervisor")

    def send(self, message: ToCore) -> None:
        """Send to the serving core. Raises EngineDeadError when there is none."""
        self.check(heartbeat=False)
        assert self._child is not None
        self._child.channel.send(message)

    def check(self, *, heartbeat: bool = True) -> None:
        """Raise EngineDeadError unless the core serves (and, with heartbeat, has been heard lately)."""
        if self.state is not CoreState.READY:
            raise EngineDeadError(f"the engine core is not up ({self.state.value}){self._cause}")
        if heartbeat and self.heartbeat_age_s > self._limit_s(self._patience.silent_s):
            raise EngineDeadError(f"the engine core has been silent for {self.heartbeat_age_s:.0f} s")

    async def stop(self) -> None:
        """Stop the core for good: ask, terminate, kill. Safe to call twice and at any moment."""
        was_ready = self.state is CoreState.READY
        self.state = CoreState.STOPPED
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        child, self._child = self._child, None
        if child is not None:
            if was_ready:
                child.channel.send(Shutdown())
            else:
                child.kill()
            await child.stop(self._patience.stop_s)

    async def _launch(self, config: EngineConfig) -> tuple[CoreChild, CoreReady]:
        child = CoreChild(config, self._command, self._log_level)
        self._child = child
        try:
            ready = await child.ready(self._patience.start_s)
        except BaseException:  # also when cancelled: the process must not be left behind
            self._child = None
            child.close()
            raise
        self._heard_s = time.monotonic()
        self._cause = ""
        self.state = CoreState.READY
        return child, ready

    async def _supervise(
        self, child: CoreChild, on_step: Callable[[StepOutputs], None], on_lost: Callable[[str], None]
    ) -> None:
        """Serve with one core after another."""
        num_crashes = 0
        while True:
            started_s = time.monotonic()
            cause = await self._serve(child, on_step)
            num_crashes = 1 if time.monotonic() - started_s > self._patience.stable_s else num_crashes + 1
            self._lose(child, cause)
            on_lost(cause)
            child = await self._relaunch(num_crashes)
            _logger.warning("the engine core was restarted and serves again, pid %d", child.pid)

    async def _relaunch(self, num_crashes: int) -> CoreChild:
        """Start the next core, with growing pauses, until one serves."""
        patience = self._patience
        while True:
            # The exponent is bounded: 2 ** 1100 is no float.
            await asyncio.sleep(min(patience.max_backoff_s, patience.backoff_s * 2 ** min(num_crashes - 1, 30)))
            try:
                return (await self._launch(self.config))[0]
            except OctavoError as error:
                num_crashes += 1
                self._cause = f": it cannot be restarted, {error.message}"
                _logger.error("the engine core could not be restarted: %s", error.message)

    def _lose(self, child: CoreChild, cause: str) -> None:
        self.state = CoreState.RESTARTING
        self._cause = f": it {cause}"
        _logger.error("the engine core %s; it is restarted", cause)
        self._child = None
        child.close()

    async def _serve(self, child: CoreChild, on_step: Callable[[StepOutputs], None]) -> str:
        """Hear the core until it ends or hangs; returns the cause."""
        reader = asyncio.create_task(
            child.channel.deliver(lambda message: self._take(message, on_step)), name="octavo-core-reader"
        )
        exited = asyncio.create_task(child.exited.wait())
        num_silent = 0
        try:
            while True:
                await asyncio.wait({reader, exited}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                if child.exited.is_set():
                    return child.exit_cause()
                if reader.done():
                    return f"cannot be heard any more ({reader.exception()!r})"
                limit_s = self._limit_s(self._patience.hung_s)
                num_silent = num_silent + 1 if self.heartbeat_age_s > limit_s else 0
                if num_silent >= SILENT_CHECKS:
                    return f"was silent for more than {limit_s:.0f} s and was killed"
        finally:
            reader.cancel()
            exited.cancel()
            await asyncio.gather(reader, exited, return_exceptions=True)

    def _take(self, message: FromCore, on_step: Callable[[StepOutputs], None]) -> None:
        """One message of the serving core."""
        self._heard_s = time.monotonic()
        if isinstance(message, StepOutputs):
            self._longest_step_s = max(self._longest_step_s, message.at_s - message.started_s)
            on_step(message)
        elif isinstance(message, Reconfigured | MemoryRead | CallFailed):
            self._on_answer(message)
        else:
            _logger.error("the core sent a %s out of turn", type(message).__name__)

    def _limit_s(self, least_s: float) -> float:
        return max(least_s, self._patience.steps * self._longest_step_s)
