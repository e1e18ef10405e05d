"""Jumps change nothing: not a time, not a block, not a place in the free list."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from tests.unit.simulator.traces import COST, engine, num_finished, random_trace

from octavo.simulator.recorder import Recorder
from octavo.simulator.replica import EngineSpec, Replica, prompt_of
from octavo.simulator.trace import Trace, make_trace


def run(trace: Trace, spec: EngineSpec, *, jumps: bool) -> tuple[Recorder, Replica]:
    recorder = Recorder(len(trace))
    replica = Replica(0, spec, trace, COST, recorder, jumps=jumps)
    for request, now_s in enumerate(trace.arrival_s.tolist()):
        replica.advance(now_s)
        replica.add(request, now_s)
    replica.advance(math.inf)
    replica.scheduler.check_integrity()
    return recorder, replica


def books(recorder: Recorder, replica: Replica) -> list[object]:
    manager = replica.manager
    percentiles = [recorder.itl.percentile(percent) for percent in range(1, 101)]
    return [
        recorder.first_token_s,
        recorder.finish_s,
        recorder.num_preemptions,
        recorder.cached_tokens,
        recorder.num_steps,
        percentiles,
        manager.stats(),
        manager._pool.free_order(),
        manager._cache.digests,
    ]


@pytest.mark.parametrize("seed", range(24))
def test_jumps_equal_single_steps_down_to_the_block_pool(seed: int) -> None:
    rng = random.Random(seed)
    trace = random_trace(seed, rate=rng.choice((5.0, 20.0, 60.0)), sharing=seed % 2 == 0)
    spec = engine(
        num_blocks=rng.choice((16, 20, 30, 64)),
        max_num_seqs=rng.choice((1, 3, 8, 16)),
        max_num_batched_tokens=rng.choice((16, 33, 64)),
        chunked_prefill_size=rng.choice((5, 16)),
        enable_prefix_caching=seed % 3 > 0,
        admission=rng.choice(("eager", "optimistic", "guaranteed")),
    )
    with_jumps, without = run(trace, spec, jumps=True), run(trace, spec, jumps=False)
    assert books(*with_jumps) == books(*without)
    assert num_finished(with_jumps[0]) == len(trace)


def test_the_random_traces_preempt_and_hit() -> None:
    """Else the comparison above would say nothing of them."""
    recorder, _ = run(random_trace(0, rate=60.0, sharing=True), engine(num_blocks=18), jumps=True)
    assert recorder.num_preemptions > 5 and recorder.cached_tokens > 100


def test_jumps_are_taken() -> None:
    trace = make_trace("one", [0.0], [10], [100])
    recorder = Recorder(1)
    replica = Replica(0, engine(), trace, COST, recorder)
    replica.add(0, 0.0)
    ticks = 0
    while replica.num_live:
        replica.tick(math.inf)
        ticks += 1
    assert recorder.num_steps == 100 and ticks <= 4


def test_a_request_takes_the_time_of_its_steps() -> None:
    trace = make_trace("one", [3.0], [40], [3])
    recorder, _ = run(trace, engine(), jumps=True)
    first = COST.seconds(32, 32 * 33 // 2, 0, 0) + COST.seconds(8, 8 * 32 + 36, 0, 0)
    assert recorder.first_token_s[0] == pytest.approx(first)
    assert recorder.finish_s[0] == pytest.approx(first + COST.seconds(0, 0, 1, 41) + COST.seconds(0, 0, 1, 42))


def test_prompts_share_what_the_trace_says_and_nothing_else() -> None:
    trace = make_trace("t", [0.0, 1.0], [6, 5], [1, 1], shared=[((3, 2), (4, 2)), ((3, 2),)])
    left, right = prompt_of(trace, 0), prompt_of(trace, 1)
    assert left[:4] == [3, 3, 4, 4] and right[:2] == [3, 3]
    assert len(left) == 6 and len(right) == 5 and not set(left[4:]) & set(right[2:])


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "priority", "fair"])
def test_every_policy_runs_a_trace_to_its_end(policy: str) -> None:
    spec = engine(num_blocks=24)
    spec = replace(spec, scheduler=replace(spec.scheduler, scheduler_policy=policy, tenant_weights="a=2"))
    trace = random_trace(7, rate=60.0, sharing=True)
    recorder, _ = run(trace, spec, jumps=True)
    assert num_finished(recorder) == len(trace) and not any(map(math.isnan, recorder.finish_s))


def test_shortest_jobs_first_shortens_the_mean_wait() -> None:
    trace = random_trace(8, 200, rate=60.0)
    mean_s = {}
    for policy in ("fcfs", "sjf"):
        spec = engine()
        recorder, _ = run(trace, replace(spec, scheduler=replace(spec.scheduler, scheduler_policy=policy)), jumps=True)
        mean_s[policy] = sum(f - a for f, a in zip(recorder.first_token_s, recorder.arrival_s, strict=True)) / len(trace)
    assert mean_s["sjf"] < 0.9 * mean_s["fcfs"]


@pytest.mark.parametrize("seed", range(3))
def test_guesses_shorten_a_simulation_by_as_much_as_they_are_right(seed: int) -> None:
    trace = random_trace(seed, rate=2.0, sharing=False)
    plain = engine(num_blocks=64, max_num_seqs=8)
    scheduler = replace(plain.scheduler, speculative_config='{"method": "ngram"}')
    ends = []
    for chance in (None, 0.0, 0.6, 0.95):
        spec = plain if chance is None else replace(plain, scheduler=scheduler, draft_acceptance=chance)
        recorder, replica = run(trace, spec, jumps=True)
        assert num_finished(recorder) == len(trace)
        ends.append(sum(recorder.finish_s) - sum(recorder.arrival_s))
        again, _ = run(trace, spec, jumps=True)
        assert again.finish_s == recorder.finish_s
        stats = replica.scheduler.speculation.stats
        if stats.num_draft_tokens > 100:
            assert stats.accepted_at[0] / stats.num_drafts == pytest.approx(chance, abs=0.15)
    assert ends[1] <= 1.02 * ends[0] and ends[3] < ends[2] <= 1.02 * ends[0]
