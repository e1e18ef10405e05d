"""Reconfiguring through both faces of the engine: over the wire to a core process, and in this one."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.engine.test_async_llm_engine import LONG, run, serving, text_of, until, until_healthy
from tests.fakes import FakeWorker, fake_text, make_fake_core, write_model

from octavo.config.engine import EngineConfig
from octavo.engine.args import EngineArgs
from octavo.engine.core.build import BuiltCore
from octavo.engine.llm_engine import LLMEngine
from octavo.errors import ConfigError, EngineDeadError, InvalidRequestError, OverloadedError
from octavo.sampling_params import SamplingParams
from octavo.utils import memory_stats


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def test_settings_change_under_running_streams_and_both_sides_know(model: Path) -> None:
    async def test() -> None:
        async with serving(model) as engine:
            sampling = SamplingParams(max_tokens=100, seed=1, ignore_eos=True)
            # One slow prompt holds all steps up, so that none has ended when the last one arrives; should this process be kept
            # waiting for seconds all the same, those that have ended count as started.
            prompts = ["slow", *(f"prompt {i}" for i in range(5))]
            texts = [asyncio.create_task(text_of(engine, prompt, sampling)) for prompt in prompts]
            await until(lambda: engine.stats().num_running + sum(text.done() for text in texts) == 6)
            report = await engine.reconfigure(block_size=32, max_num_seqs=2, max_num_batched_tokens=16, chunked_prefill_size=16)
            assert report.changed["block_size"] == (16, 32)
            assert engine.resolved_config == report.config and engine.resolved_config.cache.block_size == 32
            memory = await engine.memory_stats()
            assert memory.block_size == 32 and memory.num_blocks == report.config.cache.num_gpu_blocks_override
            assert len(memory.sequences) <= 2
            assert await asyncio.gather(*texts) == [fake_text(prompt, 100, seed=1) for prompt in prompts]
            await until(lambda: engine.ledger.core.num_used_blocks == 0)
            assert engine.ledger.core.num_reconfigurations == 1

    run(test())


def test_a_policy_is_swapped_under_running_streams_and_then_priorities_are_taken_or_refused(model: Path) -> None:
    async def test() -> None:
        async with serving(model, max_num_seqs=2) as engine:
            slow = [await engine.add_request("slow", LONG) for _ in range(5)]
            await until(lambda: engine.stats().num_running == 2)
            with pytest.raises(InvalidRequestError, match="fcfs would ignore it"):
                await engine.add_request("x", LONG, priority=1)
            for policy in ("sjf", "fair", "priority"):
                await engine.reconfigure(scheduler_policy=policy)
            urgent = await engine.add_request("x", SamplingParams(max_tokens=2, seed=1), priority=-1)
            assert [output async for output in urgent][-1].finished
            assert engine.ledger.num_live == 5 and engine.ledger.num_queued == 3, "it passed those that were there before"
            for stream in slow:
                stream.close()
            await until(lambda: engine.ledger.core.num_used_blocks == 0)

    run(test())


def test_a_refused_change_names_the_setting_and_changes_nothing(model: Path) -> None:
    async def test() -> None:
        async with serving(model) as engine:
            before = engine.resolved_config
            with pytest.raises(ConfigError, match="must be a multiple of 8") as refused:
                await engine.reconfigure(max_num_seqs=3, block_size=20)
            assert refused.value.param == "block_size" and engine.resolved_config is before
            with pytest.raises(ConfigError, match="did you mean max_num_seqs"):
                await engine.reconfigure(max_num_seq=3)
            assert await text_of(engine, "x", SamplingParams(max_tokens=3, seed=0)) == fake_text("x", 3)

    run(test())


def test_a_restarted_core_has_the_changed_settings(model: Path) -> None:
    async def test() -> None:
        async with serving(model) as engine:
            await engine.reconfigure(block_size=64, max_num_seqs=3)
            assert engine.core_pid is not None
            os.kill(engine.core_pid, signal.SIGKILL)
            with pytest.raises(EngineDeadError):
                await engine.memory_stats()
            await until_healthy(engine)
            assert (await engine.memory_stats()).block_size == 64

    run(test())


def test_the_queue_limit_changes_at_the_door(model: Path) -> None:
    async def test() -> None:
        async with serving(model, max_num_seqs=1) as engine:
            streams = [await engine.add_request("slow", LONG) for _ in range(4)]
            await engine.reconfigure(max_num_queued_requests=1)
            with pytest.raises(OverloadedError, match="the limit is 1"):
                await engine.add_request("x", LONG)
            await engine.reconfigure(max_num_queued_requests=99, max_num_queued_tokens=2)
            with pytest.raises(OverloadedError, match="max-num-queued-tokens"):
                await engine.add_request("x", LONG)
            await engine.reconfigure(max_num_queued_tokens=0, queue_timeout=0.001)
            for stream in streams[1:]:
                with pytest.raises(OverloadedError, match="queue"):
                    await stream.__anext__()
            for stream in streams:
                stream.close()

    run(test())


def test_the_synchronous_face_changes_settings_between_steps(model: Path) -> None:
    worker = FakeWorker()

    def make_core(config: EngineConfig) -> BuiltCore:
        return make_fake_core(config, worker)

    args = EngineArgs(model=str(model), load_format="dummy", max_num_seqs=4)
    engine = LLMEngine(args.create_engine_config(), make_core=make_core)
    for index in range(4):
        engine.add_request(str(index), f"prompt {index}", SamplingParams(max_tokens=20, seed=1))
    engine.step()
    assert engine.reconfigure(block_size=8, max_num_seqs=2).num_preempted == 2
    report = memory_stats(engine)
    assert (report.block_size, len(report.sequences), report.num_used) == (8, 2, 2)
    with pytest.raises(ConfigError):
        engine.reconfigure(block_size=9)
    texts = {}
    while engine.has_unfinished_requests():
        texts.update({output.request_id: output.outputs[0].text for output in engine.step()})
    assert texts == {str(index): fake_text(f"prompt {index}", 20, seed=1) for index in range(4)}
    engine.check_integrity()
    engine.shutdown()
    assert engine.resolved_config.cache.block_size == 8
    with pytest.raises(EngineDeadError):
        engine.reconfigure(block_size=16)
