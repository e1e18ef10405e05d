"""AsyncLLMEngine over a real core process with a fake worker: streams, cancellation, overload, crashes, shutdown."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import fake_text, write_model

from octavo.engine.args import EngineArgs
from octavo.engine.frontend.async_llm_engine import AsyncLLMEngine
from octavo.engine.frontend.ledger import ShedReason
from octavo.engine.frontend.supervisor import CoreState, Patience
from octavo.errors import (
    ConfigError,
    ContextLengthError,
    EngineDeadError,
    InvalidRequestError,
    LoadError,
    OverloadedError,
    RequestFailedError,
)
from octavo.request import RequestOptions
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.sequence import FinishReason
from octavo.structured_outputs import StructuredOutputsParams

ROOT = Path(__file__).resolve().parents[2]
CORE = (sys.executable, str(ROOT / "tests/fake_core_process.py"))
LONG = SamplingParams(max_tokens=200, ignore_eos=True, seed=0, output_kind=RequestOutputKind.DELTA)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@asynccontextmanager
async def serving(model: Path, patience: Patience | None = None, **options: Any) -> AsyncIterator[AsyncLLMEngine]:
    """An engine that is stopped at the end, with its books in order and no process left."""
    config = EngineArgs(model=str(model), load_format="dummy", **options).create_engine_config()
    engine = await AsyncLLMEngine.start(config, core_command=CORE, patience=patience, log_level="error")
    pid = engine.core_pid
    try:
        yield engine
        engine.ledger.check_integrity()
    finally:
        await engine.shutdown()
    assert pid is not None and not alive(pid) and engine.core_pid is None
    assert engine.ledger.num_live == 0


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "the condition never came true"
        await asyncio.sleep(0.005)


async def until_healthy(engine: AsyncLLMEngine) -> None:
    await until(lambda: engine._supervisor.state is CoreState.READY)


async def text_of(engine: AsyncLLMEngine, prompt: str, sampling: SamplingParams, **options: Any) -> str:
    deltas = engine.generate(prompt, sampling, output_kind=RequestOutputKind.DELTA, **options)
    return "".join([output.outputs[0].text async for output in deltas])


async def first_output(engine: AsyncLLMEngine, prompt: str) -> tuple[Any, Any]:
    stream = engine.generate(prompt, LONG)
    return stream, await stream.__anext__()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(_bounded(test))


async def _bounded(test: Coroutine[Any, Any, None]) -> None:
    await asyncio.wait_for(test, 60)


def is_idle(engine: AsyncLLMEngine) -> bool:
    stats = engine.stats()
    core = engine.ledger.core
    return (stats.num_running, stats.num_waiting, stats.num_used_blocks, core.num_running, core.num_waiting) == (0, 0, 0, 0, 0)


def test_concurrent_streams_give_what_each_gives_alone(model: Path) -> None:
    async def test() -> None:
        async with serving(model) as engine:
            sampling = SamplingParams(max_tokens=20, seed=1)
            texts = await asyncio.gather(*(text_of(engine, f"prompt {i}", sampling) for i in range(8)))
            assert list(texts) == [fake_text(f"prompt {i}", 20, seed=1) for i in range(8)]
            outputs = [o async for o in engine.generate("prompt 0", sampling, "id", output_kind=RequestOutputKind.FINAL_ONLY)]
            assert len(outputs) == 1 and outputs[0].outputs[0].text == texts[0] and outputs[0].request_id == "id"
            assert outputs[0].metrics is not None and outputs[0].metrics.outcome is FinishReason.LENGTH
            stopped = await text_of(engine, "prompt 0", SamplingParams(max_tokens=20, seed=1, stop=[texts[0][5:8]]))
            assert stopped == texts[0][:5]
            await until(lambda: is_idle(engine))
            assert len(engine.description) >= 5 and engine.chat_template.exists

    run(test())


def test_refusals_come_before_anything_runs(model: Path) -> None:
    async def test() -> None:
        async with serving(model) as engine:
            with pytest.raises(ContextLengthError):
                await text_of(engine, "x" * 10_000, SamplingParams())
            with pytest.raises(InvalidRequestError):
                await text_of(engine, "x", SamplingParams(temperature=-1.0))
            stream = await engine.add_request("slow", LONG, "same")
            with pytest.raises(InvalidRequestError, match="in use"):
                await engine.add_request("slow", LONG, "same")
            stream.close()
            await until(lambda: is_idle(engine))

    run(test())


def test_a_form_is_refused_as_often_as_it_is_checked(model: Path) -> None:
    async def test() -> None:
        async with serving(model) as engine:
            for form in ({"regex": "("}, {"json": {"type": "nonsense"}}, {"choice": [""]}):
                for _ in range(3):
                    with pytest.raises(InvalidRequestError, match=next(iter(form))):
                        await engine.check_form(StructuredOutputsParams(**form))

    run(test())


def test_a_failed_request_raises_and_its_neighbour_goes_on(model: Path) -> None:
    async def test() -> None:
        async with serving(model) as engine:
            sampling = SamplingParams(max_tokens=30, seed=0)
            bad, good = await asyncio.gather(
                text_of(engine, "poison", sampling), text_of(engine, "good", sampling), return_exceptions=True
            )
            assert isinstance(bad, RequestFailedError) and "poisoned" in bad.message
            assert good == fake_text("good", 30)

    run(test())


def test_clients_that_vanish_at_any_moment_leave_nothing_behind(model: Path) -> None:
    async def test() -> None:
        async with serving(model, max_num_seqs=4) as engine:

            async def client(index: int) -> None:
                count = 0
                async for _ in engine.generate(f"slow {index}", LONG):
                    count += 1
                    if count > index % 7:
                        return  # the generator is closed by the loop's hooks

            tasks = [asyncio.create_task(client(index)) for index in range(32)]
            await until(lambda: engine.stats().num_running == 4)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await until(lambda: is_idle(engine), 5.0)
            assert await text_of(engine, "after", SamplingParams(max_tokens=5, seed=0)) == fake_text("after", 5)

    run(test())


def test_abort_ends_the_stream_with_its_reason(model: Path) -> None:
    async def test() -> None:
        async with serving(model) as engine:
            stream = await engine.add_request("slow", LONG, "r")
            await stream.__anext__()
            await engine.abort(["r", "unknown"])
            outputs = [output async for output in stream]
            assert outputs[-1].finished and outputs[-1].outputs[0].finish_reason == "abort"
            assert engine.ledger.totals.finished[FinishReason.ABORT] == 1
            await until(lambda: is_idle(engine))

    run(test())


def test_a_request_that_waited_too_long_is_shed_and_one_with_a_timeout_keeps_its_text(model: Path) -> None:
    async def test() -> None:
        async with serving(model, max_num_seqs=1, queue_timeout=0.3) as engine:
            timed = await engine.add_request("slow", LONG, options=RequestOptions(timeout_s=1.0))
            with pytest.raises(OverloadedError) as caught:
                async for _ in engine.generate("slow", LONG):
                    pass
            assert caught.value.status == 429 and caught.value.retry_after_s >= 1.0
            outputs = [output async for output in timed]
            assert (outputs[-1].outputs[0].finish_reason, outputs[-1].outputs[0].stop_reason) == ("length", "timeout")
            assert engine.ledger.totals.finished[FinishReason.SHED] == engine.ledger.totals.finished[FinishReason.TIMEOUT] == 1
            await until(lambda: is_idle(engine))

    run(test())


def test_a_full_queue_refuses_with_the_time_to_come_back(model: Path) -> None:
    async def test() -> None:
        async with serving(model, max_num_seqs=1, max_num_queued_requests=2) as engine:
            streams = [await engine.add_request("slow", LONG) for _ in range(3)]
            with pytest.raises(OverloadedError) as caught:
                await engine.add_request("slow", LONG)
            assert caught.value.status == 429 and caught.value.retry_after_s >= 1.0
            assert engine.ledger.totals.shed[ShedReason.QUEUE_REQUESTS] == 1
            streams[2].close()
            (await engine.add_request("slow", LONG)).close()
            for stream in streams:
                stream.close()
            await until(lambda: is_idle(engine))

    run(test())


def test_after_kill_9_requests_in_flight_end_and_new_ones_are_served(model: Path) -> None:
    async def test() -> None:
        async with serving(model) as engine:
            (stream, _), pid = await first_output(engine, "slow"), engine.core_pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(EngineDeadError, match="killed by signal 9"):
                async for _ in stream:
                    pass
            with pytest.raises(EngineDeadError, match="restarting"):
                await engine.check_health()
            with pytest.raises(EngineDeadError):
                await engine.add_request("x", LONG)
            await until_healthy(engine)
            assert engine.core_pid != pid
            assert await text_of(engine, "again", SamplingParams(max_tokens=5, seed=0)) == fake_text("again", 5)
            totals = engine.ledger.totals
            assert totals.core_restarts == 1 and totals.finished[FinishReason.ERROR] == 1
            assert not alive(pid)

    run(test())


def test_a_core_that_cannot_come_back_is_tried_again_until_it_can(model: Path, tmp_path: Path) -> None:
    async def test() -> None:
        path = write_model(tmp_path / "model")
        async with serving(path, Patience(backoff_s=0.01, max_backoff_s=0.2)) as engine:
            (path / "config.json").rename(tmp_path / "away.json")
            with pytest.raises(EngineDeadError, match="exit code 3"):
                await text_of(engine, "die", LONG)
            await until(lambda: "cannot be restarted" in engine._supervisor._cause)
            with pytest.raises(EngineDeadError, match="cannot be restarted, the files of the model cannot be loaded$"):
                await engine.check_health()
            (tmp_path / "away.json").rename(path / "config.json")
            await until_healthy(engine)
            assert await text_of(engine, "again", SamplingParams(max_tokens=5, seed=0)) == fake_text("again", 5)

    run(test())


def test_a_hung_core_is_noticed_and_replaced(model: Path) -> None:
    async def test() -> None:
        async with serving(model, Patience(silent_s=0.5, hung_s=1.5)) as engine:
            hung = asyncio.create_task(text_of(engine, "hang", LONG))
            await until(lambda: engine.stats().heartbeat_age_s > 1.2)
            with pytest.raises(EngineDeadError, match="silent"):
                await engine.check_health()
            with pytest.raises(EngineDeadError, match="silent for more than"):
                await hung
            await until_healthy(engine)
            assert await text_of(engine, "again", SamplingParams(max_tokens=5, seed=0)) == fake_text("again", 5)

    run(test())


def test_undecodable_messages_do_not_disturb_the_core(model: Path) -> None:
    async def test() -> None:
        async with serving(model) as engine:
            child = engine._supervisor._child
            assert child is not None
            for junk in (b"", b"junk", b"\xc1" * 1000, b"\x81\xa4type\xa7unknown"):
                child.channel._socket.send(len(junk).to_bytes(4, "big") + junk)
            assert await text_of(engine, "fine", SamplingParams(max_tokens=5, seed=0)) == fake_text("fine", 5)

    run(test())


def test_drain_lets_requests_finish_and_refuses_new_ones(model: Path) -> None:
    async def test() -> None:
        async with serving(model) as engine:
            running = asyncio.create_task(text_of(engine, "slow", SamplingParams(max_tokens=10, seed=0)))
            await until(lambda: engine.stats().num_running == 1)
            drained = asyncio.create_task(engine.drain(30.0))
            await asyncio.sleep(0)
            with pytest.raises(EngineDeadError, match="shutting down"):
                await engine.add_request("x", LONG)
            await drained
            assert running.done() or len(await running) == 10

    run(test())


def test_drain_aborts_what_is_not_done_in_time(model: Path) -> None:
    async def test() -> None:
        async with serving(model) as engine:
            stream = await engine.add_request("slow", LONG)
            await engine.drain(0.0)
            outputs = [output async for output in stream]
            assert outputs[-1].outputs[0].finish_reason == "abort"

    run(test())


def test_shutdown_ends_requests_in_flight_and_can_be_repeated(model: Path) -> None:
    async def test() -> None:
        async with serving(model) as engine:
            stream, _ = await first_output(engine, "slow")
            await engine.shutdown()
            with pytest.raises(EngineDeadError, match="shut down before") as ended:
                async for _ in stream:
                    pass
            assert ended.value.code == "request_aborted"
            with pytest.raises(EngineDeadError):
                await engine.add_request("x", LONG)

    run(test())


def test_what_keeps_the_core_from_starting_is_raised_as_it_is(model: Path, tmp_path: Path) -> None:
    async def start(path: Path, **options: Any) -> None:
        config = EngineArgs(model=str(path), load_format="dummy", **options).create_engine_config()
        await AsyncLLMEngine.start(config, core_command=CORE, log_level="error")

    with pytest.raises(ConfigError, match="--kv-cache-memory") as caught:
        asyncio.run(start(model, num_gpu_blocks_override=2, max_model_len=256))
    assert caught.value.param == "kv_cache_memory"
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(LoadError, match=r"config\.json"):
        asyncio.run(start(tmp_path))


def test_two_engines_in_one_process_do_not_mix(model: Path) -> None:
    async def test() -> None:
        async with serving(model) as first, serving(model) as second:
            sampling = SamplingParams(max_tokens=10, seed=0)
            texts = await asyncio.gather(
                text_of(first, "one", sampling, request_id="r"), text_of(second, "two", sampling, request_id="r")
            )
            assert list(texts) == [fake_text("one", 10), fake_text("two", 10)]
            assert first.ledger.totals.generation_tokens == second.ledger.totals.generation_tokens == 10

    run(test())


def test_the_core_dies_with_its_parent(model: Path) -> None:
    program = f"""
import asyncio, os, signal, sys
sys.path.insert(0, {str(ROOT)!r})
from octavo import AsyncLLMEngine, EngineArgs
async def main():
    config = EngineArgs(model={str(model)!r}, load_format="dummy").create_engine_config()
    engine = await AsyncLLMEngine.start(config, core_command={CORE!r})
    print(engine.core_pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    asyncio.run(until(lambda: not running(int(done.stdout)), 5.0))


def running(pid: int) -> bool:
    """Whether the process still executes; one that has ended but was not reaped by anybody does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
