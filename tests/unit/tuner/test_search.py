"""The search finds better settings, keeps the bounds, and says so when it cannot."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from octavo.config.resolved import ResolvedSchedulerConfig
from octavo.simulator.cost_model import CostModel
from octavo.simulator.fleet import FleetSpec
from octavo.simulator.replica import EngineSpec
from octavo.simulator.trace import Trace, make_trace
from octavo.tuner.search import Bounds, Search, variants

COST = CostModel(
    step_s=5e-3, small_token_s=0.0, prefill_token_s=0.3e-3, prefill_pair_s=0.0, decode_seq_s=0.3e-3, context_token_s=1e-6
)


def load(count: int = 150, rate: float = 8.0) -> Trace:
    rng = random.Random(1)
    now_s, arrivals = 0.0, []
    for _ in range(count):
        now_s += rng.expovariate(rate)
        arrivals.append(now_s)
    return make_trace("load", arrivals, [rng.randint(20, 600) for _ in arrivals], [rng.randint(5, 80) for _ in arrivals])


def fleet(**changes: int) -> FleetSpec:
    scheduler = replace(ResolvedSchedulerConfig(max_model_len=1024), **changes)  # type: ignore[arg-type]
    return FleetSpec(engine=EngineSpec(scheduler=scheduler, num_blocks=400, block_size=16))


def test_throughput_without_bounds_wants_more_than_four_sequences() -> None:
    start, best = Search(load(), fleet(max_num_seqs=4), COST, Bounds()).run()
    assert best.engine.scheduler.max_num_seqs > 4
    assert best.summary.output_tokens_per_s > 1.2 * start.summary.output_tokens_per_s


def test_an_itl_bound_shrinks_the_step() -> None:
    bounds = Bounds(itl_p99_s=0.04, ttft_p90_s=2.0)
    search = Search(load(), fleet(max_num_batched_tokens=256, chunked_prefill_size=256), COST, bounds)
    heard: list[tuple[int, int]] = []
    start, best = search.run(lambda done, total: heard.append((done, total)))
    assert best.holds and best.summary.itl_s.p99 <= 0.04 and best.summary.ttft_s.p90 <= 2.0
    assert best.engine.scheduler.chunked_prefill_size < start.engine.scheduler.chunked_prefill_size
    assert best.rate_scale >= start.rate_scale
    assert heard and all(done <= total for done, total in heard) and search.num_simulations > len(heard)


def test_latency_is_judged_at_the_rate_of_the_trace() -> None:
    start, best = Search(load(rate=2.0), fleet(max_num_seqs=1), COST, Bounds(), "latency").run()
    assert best.rate == start.rate == 0 and best.summary.e2e_s.mean < start.summary.e2e_s.mean


def test_bounds_that_nothing_keeps_give_the_nearest_settings() -> None:
    _, best = Search(load(60), fleet(), COST, Bounds(itl_p99_s=1e-4)).run()
    assert not best.holds


def test_variants_keep_the_cache_in_tokens_and_the_step_consistent() -> None:
    engine = fleet().engine
    sizes = list(variants(engine, "block_size", (8, 64)))
    assert [(spec.block_size, spec.num_blocks) for spec in sizes] == [(8, 800), (64, 100)]
    (small,) = variants(engine, "max_num_batched_tokens", (32,))
    assert small.scheduler.max_num_seqs == small.scheduler.chunked_prefill_size == 32
    assert not list(variants(engine, "chunked_prefill_size", (1024,)))


@pytest.mark.parametrize("shared", [False, True])
def test_the_prefix_cache_is_modelled_where_prompts_begin_alike(shared: bool) -> None:
    """Thirty prompts of 400 tokens, which are one and the same prompt or thirty different ones."""
    count, contents = 30, [((0, 400),)] * 30 if shared else None
    trace = make_trace("t", [0.1 * index for index in range(count)], [400] * count, [5] * count, shared=contents)
    _, best = Search(trace, fleet(), COST, Bounds()).run()
    assert (best.summary.prefix_hit_rate > 0.5) is shared
    assert best.engine.enable_prefix_caching is shared

