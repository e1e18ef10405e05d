"""The supervisor never gives up and never lies: restarts that fail in any way, cores that stand still, files that change."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import fake_text, write_model

from octavo.engine.args import EngineArgs
from octavo.engine.frontend import supervisor
from octavo.engine.frontend.async_llm_engine import AsyncLLMEngine
from octavo.engine.frontend.child import CORE_COMMAND
from octavo.engine.frontend.supervisor import Patience
from octavo.errors import ConfigError, EngineDeadError, LoadError
from octavo.sampling_params import SamplingParams

pytestmark = pytest.mark.alone

FAKE_CORE = (sys.executable, str(Path(__file__).resolve().parents[1] / "fake_core_process.py"))
SHORT = SamplingParams(max_tokens=5, seed=0)
LONG = SamplingParams(max_tokens=100, ignore_eos=True, seed=0)
QUICK = Patience(backoff_s=0.01, max_backoff_s=0.05)
TIMEOUT_S = 40.0


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


@asynccontextmanager
async def serving(model: Path, patience: Patience, command: tuple[str, ...] = FAKE_CORE) -> AsyncIterator[AsyncLLMEngine]:
    config = EngineArgs(model=str(model), load_format="dummy").create_engine_config()
    engine = await AsyncLLMEngine.start(config, core_command=command, patience=patience, log_level="error")
    try:
        yield engine
    finally:
        await engine.shutdown()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, TIMEOUT_S))


async def health_of(engine: AsyncLLMEngine) -> str:
    """What /health says: "" while it is well."""
    try:
        await engine.check_health()
    except EngineDeadError as error:
        return error.message
    return ""


async def until_well(engine: AsyncLLMEngine) -> None:
    while await health_of(engine):
        await asyncio.sleep(0.01)


async def until_ill(engine: AsyncLLMEngine, part: str) -> str:
    while part not in (health := await health_of(engine)) or not health:
        await asyncio.sleep(0.01)
    return health


async def kill_core(engine: AsyncLLMEngine) -> None:
    assert engine.core_pid is not None
    os.kill(engine.core_pid, signal.SIGKILL)
    await until_ill(engine, "")


async def text_of(engine: AsyncLLMEngine, prompt: str, sampling: SamplingParams = SHORT) -> str:
    return [output.outputs[0].text async for output in engine.generate(prompt, sampling)][-1]


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (OSError(errno.EMFILE, "Too many open files", "/proc/self/secret"), "too many open files"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/opt/secret/python"), "no such file"),
        (RuntimeError("can't start new thread in /secret"), "it failed while it started"),
        (MemoryError("/secret"), "it failed while it started"),
        (LoadError("/secret/model.gguf: truncated"), "the files of the model cannot be loaded"),
        (ConfigError("--swap-path /secret: full"), "its settings cannot be met"),
        (ValueError("/secret"), "it failed while it started"),
    ],
)
def test_whatever_keeps_a_core_from_starting_is_tried_again(
    fault: Exception, cause: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FailingChild:
        def __init__(self, *_args: object) -> None:
            raise fault

    async def test() -> None:
        async with serving(model, QUICK) as engine:
            with monkeypatch.context() as patched:
                patched.setattr(supervisor, "CoreChild", FailingChild)
                await kill_core(engine)
                health = await until_ill(engine, cause)
                assert "secret" not in health and "/" not in health
                with pytest.raises(EngineDeadError, match=cause):
                    await engine.add_request("x", SHORT)
            await until_well(engine)
            assert await text_of(engine, "again") == fake_text("again", 5)

    run(test())


def test_a_fault_while_requests_are_ended_does_not_end_the_supervision(model: Path) -> None:
    async def test() -> None:
        async with serving(model, QUICK) as engine:

            def fail(_cause: str) -> None:
                raise RuntimeError("a fault of our own")

            engine._supervisor._on_lost = fail
            for _ in range(2):
                await kill_core(engine)
                await until_well(engine)

    run(test())


def test_one_pause_does_not_widen_the_limits(model: Path) -> None:
    async def test() -> None:
        async with serving(model, Patience(silent_s=2.5)) as engine:
            stream = await engine.add_request("slow", LONG)
            for _ in range(3):
                assert engine.core_pid is not None
                os.kill(engine.core_pid, signal.SIGSTOP)
                try:
                    assert "silent for" in await until_ill(engine, "")
                    with pytest.raises(EngineDeadError, match="silent for"):
                        await engine.add_request("x", SHORT)
                finally:
                    os.kill(engine.core_pid, signal.SIGCONT)
                await until_well(engine)
            texts = [output.outputs[0].text async for output in stream]
            assert texts[-1] == fake_text("slow", 100), "the request goes on where it was"
            assert engine.ledger.totals.core_restarts == 0

    run(test())


def test_a_core_that_computes_is_well_however_long_its_step_takes(model: Path) -> None:
    async def test() -> None:
        async with serving(model, Patience(silent_s=3.0, hung_s=4.0)) as engine:
            busy = asyncio.create_task(text_of(engine, "busy", SHORT))
            while not busy.done():
                assert await health_of(engine) == ""
                await asyncio.sleep(0.05)
            assert await busy == fake_text("busy", 5)
            assert engine.ledger.totals.core_restarts == 0

    run(test())


def test_a_step_without_an_end_is_ended(model: Path) -> None:
    async def test() -> None:
        async with serving(model, Patience(step_s=2.0, backoff_s=0.01)) as engine:
            with pytest.raises(EngineDeadError, match="in one step for more than 2 s"):
                await text_of(engine, "busy", SHORT)
            await until_well(engine)

    run(test())


def test_kill_9_under_load_twice_in_a_row(model: Path) -> None:
    async def test() -> None:
        async with serving(model, QUICK) as engine:
            for restarts in (1, 2):
                requests = [asyncio.create_task(text_of(engine, f"slow {index}", LONG)) for index in range(16)]
                while not engine.stats().num_running:
                    await asyncio.sleep(0.01)
                await kill_core(engine)
                ends = await asyncio.gather(*requests, return_exceptions=True)
                assert all(isinstance(end, EngineDeadError) and "killed by signal 9" in end.message for end in ends)
                await until_well(engine)
                assert engine.ledger.totals.core_restarts == restarts
                assert await text_of(engine, "again") == fake_text("again", 5)

    run(test())


@pytest.mark.parametrize("change", ["replaced", "written again", "gone"])
def test_other_files_are_not_served_under_the_old_name(change: str, model: Path, tmp_path: Path) -> None:
    config = model / "config.json"

    async def test() -> None:
        async with serving(model, QUICK, CORE_COMMAND) as engine:
            before = await text_of(engine, "hello")
            config.rename(tmp_path / "old.json")
            if change == "replaced":
                config.write_text((tmp_path / "old.json").read_text() + " ")
            elif change == "written again":
                config.write_text((tmp_path / "old.json").read_text())
            await kill_core(engine)
            health = await until_ill(engine, "have changed since the server was started")
            assert str(tmp_path) not in health and "config.json" not in health
            with pytest.raises(EngineDeadError, match="have changed") as refused:
                await engine.add_request("x", SHORT)
            assert refused.value.code == "model_changed" and "start the server anew" in refused.value.message
            (tmp_path / "old.json").rename(config)
            await until_well(engine)
            assert await text_of(engine, "hello") == before
            await kill_core(engine)
            with pytest.raises(EngineDeadError) as down:
                await engine.add_request("x", SHORT)
            assert down.value.code == "engine_unavailable"

    run(test())


@pytest.mark.parametrize("name", ["random", "socket", "octavo", "msgspec"])
def test_modules_in_the_working_folder_are_not_the_cores(
    name: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)

    async def test() -> None:
        async with serving(model, QUICK, CORE_COMMAND) as engine:
            assert await health_of(engine) == ""

    run(test())


def test_a_forked_copy_leaves_the_core_alone(model: Path) -> None:
    async def test() -> None:
        async with serving(model, QUICK) as engine:
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    engine._supervisor.check()
                except EngineDeadError as error:
                    code = 0 if "forked" in error.message else 2
                finally:
                    assert engine._supervisor._child is not None
                    engine._supervisor._child._finalizer()
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert await text_of(engine, "alive") == fake_text("alive", 5)

    run(test())
