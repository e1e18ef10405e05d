"""Pace: how much of what was to be computed a second of steps got done, whatever mixture of prompts and decodes it was.

Tokens per second will not do: they say more about the mixture than about the settings (prompt tokens cost less than decodes,
and a burst begins with prompts alone). So every token counts as the seconds it adds to a step, by the step-time model. What is
left of a second of steps is what a step costs for itself: the more a step holds, the smaller its share.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from octavo.scheduler.step_time import StepCosts, StepShape


@dataclass(slots=True)
class Work:
    """What some steps computed, all together, and the seconds they took."""

    shape: StepShape = StepShape(0, 0, 0.0)
    seconds: float = 0.0

    def add(self, shape: StepShape, seconds: float) -> None:
        self.shape += shape
        self.seconds += seconds


def pace(works: Iterable[Work], costs: StepCosts) -> float:
    """Weighed work per second of all of them; near 1, and above 0. Only ratios of two with the same costs mean something."""
    done_s = seconds = 1e-9
    for work in works:
        done_s += costs.work_s(work.shape)
        seconds += work.seconds
    return done_s / seconds
