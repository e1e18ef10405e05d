"""Supervisor: keeps one core process running: starts it, hears it, restarts it after a crash or a hang, and stops it."""

from __future__ import annotations

import asyncio
import enum
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from octavo.config.engine import EngineConfig
from octavo.engine.frontend.child import CORE_COMMAND, CoreChild, CoreFailedError
from octavo.engine.guard import Guard
from octavo.engine.wire.messages import (
    Answer,
    Beat,
    CallFailed,
    CoreReady,
    FromCore,
    MemoryRead,
    Reconfigured,
    Shutdown,
    StepOutputs,
    ToCore,
)
from octavo.errors import ConfigError, EngineDeadError, LoadError, OctavoError, RequestFailedError
from octavo.loader.identity import FileIdentity, changed_file
from octavo.log import get_logger

SILENT_CHECKS = 2
"""Checks in a row, a second apart, that must find the core silent: if this process itself was stopped for long, its first check
comes before the messages that arrived meanwhile are read."""

FILES_CHECK_S = 5.0
"""Between two looks whether changed files of the model are the old ones again."""

_logger = get_logger(__name__)


class CoreState(enum.Enum):
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    STOPPED = "stopped"


class ModelChangedError(EngineDeadError):
    """The files of the model are not those that the engine was started with."""

    def __init__(self) -> None:
        super().__init__(
            "the files of the model on disk have changed since the server was started; put the old ones back (mv or cp -p, "
            "for their time counts), or start the server anew to serve the new ones",
            code="model_changed",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the supervisor waits before it acts, in seconds. The limits are fixed: what happened once widens none of them.

    start_s     for a core to be ready; loading a large model from a slow disk takes minutes
    silent_s    without a word before the core counts as unhealthy, and hung_s before it is killed; a core that computes gives
                a word every second, however long its step takes
    step_s      in one step, although it computes, before it is killed
    stop_s      per stage of stopping: asked, terminated, killed
    backoff_s   before the first restart; doubled with each further crash up to max_backoff_s. It never gives up: what kept the
                core from starting (memory, a file) may pass, and until then health says what it is
    stable_s    a core that served this long resets the count of crashes
    """

    start_s: float = 1800.0
    silent_s: float = 20.0
    hung_s: float = 600.0
    step_s: float = 3600.0
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
        self._stepped_s = self._heard_s
        """When the last step ended."""
        self._weights_version = b""
        self._files: tuple[FileIdentity, ...] = ()
        self._cause = ""
        """Why there is no core, for everybody: it names no file and no place in the program."""
        self._code = EngineDeadError.code
        """The same, for programs."""
        self._calls = CoreCalls(self.send)
        self._guard = Guard("AsyncLLMEngine")
        self.state = CoreState.STARTING
        self.config: EngineConfig
        """What a restarted core is given; from `watch` on."""
        self._on_step: Callable[[StepOutputs], None]
        self._on_lost: Callable[[str], None]
        self._on_reconfigured: Callable[[Reconfigured], None]

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
        try:
            ready = (await self._launch(config))[1]
        except (OSError, RuntimeError) as error:
            raise EngineDeadError(f"the engine core cannot be started: {error}") from None
        self._weights_version, self._files = ready.weights_version, ready.files
        return ready

    def watch(
        self,
        config: EngineConfig,
        on_step: Callable[[StepOutputs], None],
        on_lost: Callable[[str], None],
        on_reconfigured: Callable[[Reconfigured], None],
    ) -> None:
        """Begin to hear the started core, and to replace it when it is lost.

        config   resolved, as CoreReady brought it, so that a restart never changes a budget
        on_step  called with every message of a serving core
        on_lost  called with the cause when a serving core is gone, before a new one is started
        on_reconfigured  called after settings were changed, whoever asked for it
        """
        assert self._child is not None and self._task is None
        self.config = config
        self._on_step, self._on_lost, self._on_reconfigured = on_step, on_lost, on_reconfigured
        self._task = asyncio.create_task(self._supervise(self._child), name="octavo-supervisor")

    def send(self, message: ToCore) -> None:
        """Send to the serving core. Raises EngineDeadError when there is none."""
        self._check_up()
        assert self._child is not None
        self._child.channel.send(message)

    async def ask(self, question: Callable[[int], ToCore]) -> Answer:
        """Send what `question` makes of a call id and await the answer.

        Raises: ConfigError when it was refused, RequestFailedError when it failed inside, EngineDeadError without a core.
        """
        self.check()
        return await self._calls.ask(question)

    def check(self) -> None:
        """Raise EngineDeadError unless the core serves and was heard lately."""
        self._check_up()
        if self.heartbeat_age_s > self._patience.silent_s:
            raise EngineDeadError(f"the engine core has been silent for {self.heartbeat_age_s:.0f} s")

    async def stop(self) -> None:
        """Stop the core for good: ask, terminate, kill. Safe to call twice and at any moment."""
        was_ready = self.state is CoreState.READY
        self.state = CoreState.STOPPED
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._calls.fail_all("was shut down")
        child, self._child = self._child, None
        if child is not None:
            if was_ready:
                try:
                    child.channel.send(Shutdown())
                except OctavoError:
                    child.kill()  # it does not read
            else:
                child.kill()
            await child.stop(self._patience.stop_s)

    def _check_up(self) -> None:
        self._guard.check_process()
        if self.state is not CoreState.READY:
            raise EngineDeadError(f"the engine core is not up ({self.state.value}){self._cause}", code=self._code)

    async def _launch(self, config: EngineConfig) -> tuple[CoreChild, CoreReady]:
        child = CoreChild(config, self._command, self._log_level)
        self._child = child
        try:
            ready = await child.ready(self._patience.start_s)
            if self._weights_version not in (b"", ready.weights_version):
                raise ModelChangedError
        except BaseException:  # also when cancelled: the process must not be left behind
            self._child = None
            child.close()
            raise
        self._heard_s = self._stepped_s = time.monotonic()
        self._cause = ""
        self.state = CoreState.READY
        return child, ready

    async def _supervise(self, child: CoreChild) -> None:
        """Serve with one core after another."""
        num_crashes = 0
        while True:
            started_s = time.monotonic()
            cause = await self._serve(child)
            num_crashes = 1 if time.monotonic() - started_s > self._patience.stable_s else num_crashes + 1
            self._lose(child, cause)
            child = await self._relaunch(num_crashes)
            _logger.warning("the engine core was restarted and serves again, pid %d", child.pid)

    async def _relaunch(self, num_crashes: int) -> CoreChild:
        """Start the next core, with growing pauses, until one serves. Whatever goes wrong may pass: nothing ends this."""
        patience = self._patience
        while True:
            # The exponent is bounded: 2 ** 1100 is no float.
            await asyncio.sleep(min(patience.max_backoff_s, patience.backoff_s * 2 ** min(num_crashes - 1, 30)))
            try:
                await self._old_files()
                return (await self._launch(self.config))[0]
            except Exception as error:
                num_crashes += 1
                self._blame(error)
                is_known = isinstance(error, OctavoError | OSError)
                _logger.error("the engine core could not be restarted: %s", error, exc_info=None if is_known else error)

    async def _old_files(self) -> None:
        """Wait until the files of the model are those that clients know by this name. A cheap look before a long load."""
        reported = ""
        while (changed := await asyncio.to_thread(changed_file, self._files)) is not None:
            self._blame(ModelChangedError())
            if changed != reported:
                _logger.error("the engine core is not restarted: %s; %s", changed, ModelChangedError().message)
                reported = changed
            await asyncio.sleep(min(FILES_CHECK_S, self._patience.max_backoff_s))

    def _blame(self, error: Exception) -> None:
        """error is why the next core does not start."""
        self._cause = f": it cannot be restarted, {_public_cause(error)}"
        self._code = error.code if isinstance(error, ModelChangedError) else EngineDeadError.code

    def _lose(self, child: CoreChild, cause: str) -> None:
        self.state = CoreState.RESTARTING
        self._cause, self._code = f": it {cause}", EngineDeadError.code
        _logger.error("the engine core %s; it is restarted", cause)
        self._child = None
        child.close()
        self._calls.fail_all(cause)
        try:
            self._on_lost(cause)
        except Exception:
            _logger.exception("requests of the lost core could not be ended")

    async def _serve(self, child: CoreChild) -> str:
        """Hear the core until it ends or hangs; returns the cause."""
        reader = asyncio.create_task(child.channel.deliver(self._take), name="octavo-core-reader")
        exited = asyncio.create_task(child.exited.wait())
        num_silent = 0
        try:
            while True:
                await asyncio.wait({reader, exited}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                if child.exited.is_set():
                    return child.exit_cause()
                if reader.done():
                    _logger.error("a message of the engine core could not be taken", exc_info=reader.exception())
                    return "cannot be understood any more and was killed"
                why = self._hang()
                num_silent = num_silent + 1 if why else 0
                if num_silent >= SILENT_CHECKS:
                    return why
        finally:
            reader.cancel()
            exited.cancel()
            await asyncio.gather(reader, exited, return_exceptions=True)

    def _hang(self) -> str:
        """Why the core is to be killed; "" while it is not."""
        patience = self._patience
        if self.heartbeat_age_s > patience.hung_s:
            return f"was silent for more than {patience.hung_s:.0f} s and was killed"
        if time.monotonic() - self._stepped_s > patience.step_s:
            return f"was in one step for more than {patience.step_s:.0f} s and was killed"
        return ""

    def _take(self, message: FromCore) -> None:
        """One message of the serving core."""
        self._heard_s = time.monotonic()
        if isinstance(message, StepOutputs):
            self._stepped_s = self._heard_s
            self._on_step(message)
        elif isinstance(message, Reconfigured | MemoryRead | CallFailed):
            if isinstance(message, Reconfigured):
                self._on_reconfigured(message)
            self._calls.answered(message)
        elif not isinstance(message, Beat):
            _logger.error("the core sent a %s out of turn", type(message).__name__)


class CoreCalls:
    """Questions to the core that are awaited one by one, beside the stream of steps.

    Each gets exactly one end: its answer, or EngineDeadError when the core is lost.
    """

    def __init__(self, send: Callable[[ToCore], None]) -> None:
        self._send = send
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}

    async def ask(self, question: Callable[[int], ToCore]) -> Answer:
        """As Supervisor.ask."""
        call_id = next(self._ids)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = future
        try:
            self._send(question(call_id))
            answer = await future
        finally:
            del self._waiting[call_id]
        if isinstance(answer, CallFailed):
            if answer.kind == "config":
                raise ConfigError(answer.message, param=answer.param)
            raise RequestFailedError(f"the engine could not do it: {answer.message}")
        return answer

    def answered(self, answer: Answer) -> None:
        """An answer has come; nobody may wait for it any more."""
        future = self._waiting.get(answer.call_id) if answer.call_id is not None else None
        if future is not None and not future.done():
            future.set_result(answer)

    def fail_all(self, cause: str) -> None:
        """The core is gone: no answer will come."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(EngineDeadError(f"the engine core {cause}"))


def _public_cause(error: Exception) -> str:
    """Why a core did not start, in words for everybody; the log has the rest, which may name files."""
    if isinstance(error, LoadError):
        return "the files of the model cannot be loaded"
    if isinstance(error, ConfigError):
        return "its settings cannot be met on this machine any more"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    if isinstance(error, EngineDeadError) and not isinstance(error, CoreFailedError):
        return error.message
    return "it failed while it started"
