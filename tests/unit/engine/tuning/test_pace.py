"""Pace: the same for every mixture of work at the same settings, higher where steps cost less of themselves."""

from __future__ import annotations

import pytest

from octavo.engine.tuning.pace import Work, pace
from octavo.scheduler.step_time import StepCosts, StepShape

COSTS = StepCosts(base=0.0, prefill=0.6e-3, decode=0.9e-3, attended=1e-6)


def work(*shapes: StepShape, step_s: float = 0.0) -> Work:
    """Steps that take what the costs say, and step_s each."""
    done = Work()
    for shape in shapes:
        done.add(shape, COSTS.work_s(shape) + step_s)
    return done


PROMPTS, DECODES = StepShape(96, 0, 4000.0), StepShape(0, 64, 9000.0)


def test_prompts_and_decodes_have_the_same_pace() -> None:
    assert pace([work(PROMPTS, PROMPTS)], COSTS) == pytest.approx(pace([work(DECODES)], COSTS), rel=1e-6)


def test_larger_steps_have_a_higher_pace_where_a_step_costs_something() -> None:
    small, large = StepShape(0, 16, 2000.0), StepShape(0, 64, 8000.0)
    assert pace([work(large, step_s=5e-3)], COSTS) > 1.1 * pace([work(*[small] * 4, step_s=5e-3)], COSTS)


def test_intervals_count_by_their_length() -> None:
    fast, slow = work(*[DECODES] * 9), work(DECODES, step_s=0.1)
    assert pace([fast, slow], COSTS) > 0.8 * pace([fast], COSTS)


def test_an_idle_interval_has_a_pace_that_can_be_divided_by() -> None:
    assert pace([Work()], COSTS) > 0.0
