"""Counting instead of scheduling gives the same times, preemptions included."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.unit.simulator.traces import COST, engine, random_trace

from octavo.errors import ConfigError
from octavo.simulator.fleet import FleetSpec, simulate


@pytest.mark.parametrize("seed", range(48))
def test_fast_equals_the_real_scheduler_without_prefix_cache(seed: int) -> None:
    rng = random.Random(seed)
    trace = random_trace(seed, 100, rate=rng.choice((5.0, 20.0, 60.0)))
    spec = engine(
        num_blocks=rng.choice((16, 20, 30, 64)),
        max_num_seqs=rng.choice((1, 3, 8, 16)),
        max_num_batched_tokens=rng.choice((16, 33, 64)),
        chunked_prefill_size=rng.choice((1, 5, 16)),
        enable_prefix_caching=False,
        admission=rng.choice(("eager", "optimistic", "optimistic", "guaranteed")),
    )
    replicas, concurrency = rng.choice((1, 3)), rng.choice((None, 6))
    real, fast = (
        simulate(trace, FleetSpec(engine=spec, num_replicas=replicas, max_concurrency=concurrency, fast=fast), COST)
        for fast in (False, True)
    )
    for name in ("arrival_s", "first_token_s", "finish_s"):
        assert getattr(fast, name) == pytest.approx(getattr(real, name), rel=1e-9, abs=1e-9)
    for name in ("replica", "num_preemptions", "num_steps", "num_generated", "peak_used_blocks", "num_finished"):
        assert getattr(fast, name) == getattr(real, name)
    assert fast.itl.count == real.itl.count and fast.itl.mean_s == pytest.approx(real.itl.mean_s)
    for percent in (10, 50, 90, 99):
        assert fast.itl.percentile(percent) == pytest.approx(real.itl.percentile(percent), rel=0.02)


def test_the_random_traces_preempt() -> None:
    spec = FleetSpec(engine=engine(num_blocks=18, enable_prefix_caching=False, admission="eager"), fast=True)
    assert simulate(random_trace(0, rate=60.0), spec, COST).num_preemptions > 5


def test_fast_does_not_model_an_itl_target() -> None:
    spec = engine()
    spec = replace(spec, scheduler=replace(spec.scheduler, target_itl=50.0))
    with pytest.raises(ConfigError, match="--fast does not model --target-itl"):
        simulate(random_trace(1, 5), FleetSpec(engine=spec, fast=True), COST)
