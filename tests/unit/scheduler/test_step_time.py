"""The step-time model: what it learns, how fast, and what does not confuse it."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from octavo.scheduler.step_time import StepShape, StepTimeModel
from octavo.step import ScheduledSequence, ShareKind, StepPlan

TRUTH = (0.004, 0.0006, 0.0025, 4e-8)


def true_s(shape: StepShape) -> float:
    base, prefill, decode, attended = TRUTH
    return base + prefill * shape.prefill_tokens + decode * shape.num_decodes + attended * shape.num_attended


def random_shape(rng: random.Random) -> StepShape:
    prefill, decodes = rng.choice([0, 0, 0, rng.randrange(2, 512)]), rng.randrange(1, 32)
    return StepShape(prefill, decodes, (prefill + decodes) * rng.randrange(1, 4000))


def fitted(num_steps: int, noise: float = 0.0, seed: int = 1) -> StepTimeModel:
    rng, model = random.Random(seed), StepTimeModel()
    for _ in range(num_steps):
        shape = random_shape(rng)
        model.observe(shape, true_s(shape) * rng.uniform(1 - noise, 1 + noise))
    return model


def test_the_shape_of_a_plan_counts_decodes_prefill_and_attended_positions() -> None:
    decode = ScheduledSequence(1, ShareKind.DECODE, 10, 1, [], True)
    plan = StepPlan(1, [decode, ScheduledSequence(2, ShareKind.PREFILL, 100, 20, [], False)])
    assert StepShape.of(plan) == StepShape(20, 1, 10 + 20 * 110)


def test_a_hundred_noisy_steps_predict_unseen_ones_within_a_tenth() -> None:
    model, rng = fitted(100, noise=0.1), random.Random(2)
    for _ in range(200):
        shape = random_shape(rng)
        assert model.predict(shape) == pytest.approx(true_s(shape), rel=0.1)


def test_a_stalled_step_hardly_moves_it() -> None:
    model, shape = fitted(100), StepShape(0, 8, 8000)
    model.observe(shape, 100 * true_s(shape))
    assert model.predict(shape) == pytest.approx(true_s(shape), rel=0.1)


def test_it_follows_a_machine_that_becomes_twice_as_slow() -> None:
    model, rng = fitted(300), random.Random(3)
    for _ in range(1500):
        shape = random_shape(rng)
        model.observe(shape, 2 * true_s(shape))
    shape = StepShape(128, 8, 136 * 1000)
    assert model.predict(shape) == pytest.approx(2 * true_s(shape), rel=0.1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fall", [0.0, 0.003, 0.006])
def test_a_text_that_grows_while_steps_become_shorter_is_no_reason_to_expect_ever_longer_ones(seed: int, fall: float) -> None:
    """A further position seems to cost less than nothing: its coefficient stays at 0, and the others take nothing for it."""
    rng, model = random.Random(seed), StepTimeModel()
    model.observe(StepShape(96, 0, 4608.0), 0.150)
    for index in range(300):
        seconds = 0.025 * (1.0 - fall * min(index, 100)) * rng.uniform(0.97, 1.03)
        shape = StepShape(0, 1, 120.0 + index)
        model.observe(shape, seconds)
        assert 0.5 * seconds < model.predict(shape) < 2.0 * seconds
        assert min(model.costs) >= 0.0


def test_what_a_decode_adds_is_known_once_steps_have_had_several_sizes() -> None:
    model = StepTimeModel()
    for _ in range(50):
        model.observe(StepShape(0, 4, 400.0), 0.010)
    assert not model.knows_rows
    model.observe(StepShape(0, 9, 900.0), 0.015)
    assert model.knows_rows
    for _ in range(5000):
        model.observe(StepShape(0, 4, 400.0), 0.010)
    assert not model.knows_rows


def test_an_hour_of_decodes_leaves_it_ready_to_learn_prefill_without_jumps() -> None:
    model, decode, prefill = fitted(50), StepShape(0, 4, 4000), StepShape(256, 4, 260 * 500)
    for _ in range(20_000):
        model.observe(decode, true_s(decode))
    assert model.predict(prefill) == pytest.approx(true_s(prefill), rel=0.5)
    for _ in range(20):
        model.observe(prefill, true_s(prefill))
    assert model.predict(prefill) == pytest.approx(true_s(prefill), rel=0.1)


@example([(0, 23, 6105284.0, 1e-6), (0, 23, 6082625.0, 1e-6), (0, 23, 6062690.0, 1e-6)])
@given(st.lists(st.tuples(st.integers(0, 4096), st.integers(0, 256), st.floats(0, 1e9), st.floats(1e-6, 1e3)), max_size=60))
def test_no_history_makes_a_prediction_negative_or_infinite(history: list[tuple[int, int, float, float]]) -> None:
    model = StepTimeModel()
    for prefill, decodes, attended, seconds in history:
        model.observe(StepShape(prefill, decodes, attended), seconds)
    assert all(0.0 <= value < 1e6 for value in model.costs)
    assert 0.0 <= model.predict(StepShape(512, 64, 1e6)) < 1e12


@given(st.floats(0.001, 10.0), st.integers(0, 100_000))
def test_the_prefill_that_fits_is_the_most_that_fits(seconds: float, context: int) -> None:
    model = fitted(100)
    num_tokens = model.prefill_tokens_within(seconds, context)
    assert model.prefill_s(num_tokens, context) <= seconds * (1 + 1e-9)
    assert model.prefill_s(num_tokens + 1, context) > seconds * (1 - 1e-9)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_times_that_are_none_teach_nothing(seconds: float) -> None:
    model = fitted(50)
    before = model.costs
    model.observe(StepShape(1, 1, 1.0), seconds)
    assert model.costs == before and model.prefill_tokens_within(-1.0, 0) == 0
