"""Several prompts of one request share the engine with everybody else."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.fakes_server import FakeEngine

from octavo.errors import OverloadedError
from octavo.request import RequestOptions
from octavo.sampling_params import SamplingParams
from octavo.server.service import generation
from octavo.server.service.generation import EncodedPrompt, Generation


def engine_of(max_num_seqs: int) -> FakeEngine:
    engine = FakeEngine()
    scheduler = replace(engine.resolved_config.scheduler, max_num_seqs=max_num_seqs)
    engine.resolved_config = replace(engine.resolved_config, scheduler=scheduler)
    return engine


def request_of(num_prompts: int, n: int = 1, options: RequestOptions | None = None, request_id: str = "r") -> Generation:
    prompts = [EncodedPrompt(None, [index]) for index in range(num_prompts)]
    params = SamplingParams(n=n, max_tokens=3)
    return Generation(request_id=request_id, prompts=prompts, params=params, options=options or RequestOptions())


@pytest.mark.parametrize(("max_num_seqs", "n", "at_once"), [(1, 1, 1), (8, 1, 4), (8, 2, 2), (8, 64, 1), (64, 1, 20)])
def test_no_more_prompts_run_at_once_than_fill_half_of_the_seats(max_num_seqs: int, n: int, at_once: int) -> None:
    async def run() -> None:
        engine = engine_of(max_num_seqs)
        engine.release.clear()
        task = asyncio.ensure_future(request_of(20, n).collect(engine))
        await engine.wait_until_running(at_once)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(engine.running) == at_once
        engine.release.set()
        results = await task
        assert [result.prompt_token_ids for result in results] == [[index] for index in range(20)]
        assert all(len(result.outputs) == n for result in results)

    asyncio.run(run())


def test_two_bodies_leave_a_third_of_the_seats() -> None:
    async def run() -> None:
        engine = engine_of(12)
        engine.release.clear()
        tasks = [asyncio.ensure_future(request_of(40, request_id=name).collect(engine)) for name in ("r", "s")]
        await engine.wait_until_running(8)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(engine.running) == 8 and {request_id[0] for request_id in engine.running} == {"r", "s"}
        engine.release.set()
        for results in await asyncio.gather(*tasks):
            assert [result.prompt_token_ids for result in results] == [[index] for index in range(40)]

    asyncio.run(run())


def test_a_prompt_of_a_request_under_way_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "RETRY_S", 0.001)

    async def run() -> None:
        engine = engine_of(2)
        refusals = 3

        def refuse_later_ones() -> None:
            nonlocal refusals
            if len(engine.requests) > 2 and refusals:
                refusals -= 1
                raise OverloadedError("full")

        engine.on_request = refuse_later_ones
        assert len(await request_of(5).collect(engine)) == 5 and refusals == 0
        engine.fail_first = OverloadedError("full")
        with pytest.raises(OverloadedError):
            await request_of(5).collect(engine)

    asyncio.run(run())


def test_later_prompts_have_what_is_left_of_the_time() -> None:
    async def run() -> None:
        engine = engine_of(1)
        await request_of(3, options=RequestOptions(timeout_s=50.0)).collect(engine)
        first, *later = engine.timeouts_s
        assert first == 50.0 and all(timeout_s is not None and 0 < timeout_s < 50.0 for timeout_s in later)

    asyncio.run(run())
