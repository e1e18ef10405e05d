"""The cost model is found again from what it costs, and never has negative terms."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.unit.simulator.traces import COST

from octavo.sampling_params import SamplingParams
from octavo.simulator.cost_model import StepLoad, fit, load_of, nonnegative_least_squares, pairs_of
from octavo.step import NewSequence, ScheduledSequence, ShareKind, StepPlan


def seconds(load: StepLoad) -> float:
    return COST.seconds(load.prefill_tokens, load.prefill_pairs, load.decode_seqs, load.decode_context)


def random_loads(seed: int, count: int = 80) -> list[StepLoad]:
    rng = random.Random(seed)
    loads = []
    for _ in range(count):
        tokens, decodes = rng.choice((0, 16, 64, 256)), rng.randint(0, 32)
        context = rng.randint(1, 2000)
        if tokens + decodes:
            loads.append(StepLoad(tokens, pairs_of(context, tokens), decodes, decodes * rng.randint(1, 2000)))
    return loads


def test_fit_finds_the_model_that_made_the_samples() -> None:
    loads = random_loads(1)
    fitted = fit(loads, [seconds(load) for load in loads])
    assert fitted.p90_error < 1e-6
    for name in ("step_s", "prefill_token_s", "prefill_pair_s", "decode_seq_s", "context_token_s"):
        assert getattr(fitted.model, name) == pytest.approx(getattr(COST, name), rel=1e-3)


def test_fit_is_not_led_astray_by_interrupted_steps() -> None:
    loads = random_loads(2, 200)
    measured = [seconds(load) * (3.0 if index % 9 == 0 else 1.0) for index, load in enumerate(loads)]
    fitted = fit(loads, measured)
    refitted = fit(loads, [seconds(load) for load in loads]).model
    assert fitted.model.step_s == pytest.approx(refitted.step_s, rel=0.05)
    assert fitted.model.prefill_token_s == pytest.approx(refitted.prefill_token_s, rel=0.02)
    assert fitted.model.decode_seq_s == pytest.approx(refitted.decode_seq_s, rel=0.05)


def test_fit_refuses_a_handful_of_samples() -> None:
    with pytest.raises(ValueError, match="at least 8"):
        fit(random_loads(3)[:5], [1.0] * 5)


def test_nonnegative_least_squares_equals_the_free_solution_where_that_is_positive() -> None:
    rng = np.random.default_rng(4)
    a = rng.uniform(size=(30, 4))
    x = np.array([0.5, 2.0, 1e-3, 7.0])
    assert nonnegative_least_squares(a, a @ x) == pytest.approx(x, rel=1e-6)


def test_nonnegative_least_squares_is_optimal_on_the_border() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        a, b = rng.normal(size=(20, 6)), rng.normal(size=20)
        x = nonnegative_least_squares(a, b)
        gradient = a.T @ (b - a @ x)
        assert (x >= 0).all()
        assert (gradient <= 1e-6).all() and np.abs(gradient[x > 0]).max(initial=0.0) < 1e-6


def test_load_of_a_plan_counts_single_positions_as_decodes() -> None:
    new = NewSequence([1] * 40, 40, 0, 0, SamplingParams(), [])
    decode = ScheduledSequence(1, ShareKind.DECODE, 9, 1, [], True)
    plan = StepPlan(1, [decode, ScheduledSequence(2, ShareKind.PREFILL, 8, 4, [], False, new=new)])
    assert load_of(plan) == StepLoad(prefill_tokens=4, prefill_pairs=9 + 10 + 11 + 12, decode_seqs=1, decode_context=10)
