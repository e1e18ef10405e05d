"""Pace: the same for every mixture of work at the same settings, higher where steps cost less of themselves."""

from __future__ import annotations

import pytest

from octavo.engine.tuning.pace import Weights, Work, pace
from octavo.scheduler.step_time import StepShape

WEIGHTS = Weights(prefill=0.6e-3, decode=0.9e-3, attended=1e-6)


def work(*shapes: StepShape, step_s: float = 0.0) -> Work:
    """Steps that take what the weights say, and step_s each."""
    done = Work()
    for shape in shapes:
        seconds = 0.6e-3 * shape.prefill_tokens + 0.9e-3 * shape.num_decodes + 1e-6 * shape.num_attended
        done.add(shape, seconds + step_s)
    return done


PROMPTS, DECODES = StepShape(96, 0, 4000.0), StepShape(0, 64, 9000.0)


def test_prompts_and_decodes_have_the_same_pace() -> None:
    assert pace([work(PROMPTS, PROMPTS)], WEIGHTS) == pytest.approx(pace([work(DECODES)], WEIGHTS), rel=1e-6)


def test_larger_steps_have_a_higher_pace_where_a_step_costs_something() -> None:
    small, large = StepShape(0, 16, 2000.0), StepShape(0, 64, 8000.0)
    assert pace([work(large, step_s=5e-3)], WEIGHTS) > 1.1 * pace([work(*[small] * 4, step_s=5e-3)], WEIGHTS)


def test_intervals_count_by_their_length() -> None:
    fast, slow = work(*[DECODES] * 9), work(DECODES, step_s=0.1)
    assert pace([fast, slow], WEIGHTS) > 0.8 * pace([fast], WEIGHTS)


def test_an_idle_interval_has_a_pace_that_can_be_divided_by() -> None:
    assert pace([Work()], WEIGHTS) > 0.0
