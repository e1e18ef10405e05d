"""StepTimeModel: how long a step takes, learned from the steps that ran.

The scheduler's estimator owns the one model of an engine. Prefill shares under a latency target, expected times, the choice
between swapping and computing again, and the tuner's pace are all read from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from octavo.step import ShareKind, StepPlan

_PRIOR_S = (2e-3, 1e-3, 2e-3, 1e-6)
"""Base, per prefill token, per decode, per attended position: a small model on a few CPU cores. Wrong by 10x they still are
overruled within a few dozen steps, because their variances below say that they may be."""
_PRIOR_SPREAD = 10.0
_MOST_PRIORS = 1e5
"""Bound of a coefficient, in priors: no machine is so slow, but absurd observations could make it seem so."""
_NOISE = 0.01
"""Variance of one step's relative error: 10%."""
_FORGETTING = 0.998
"""Half the weight is in the last 350 steps, so that the model follows a machine that slows down or is relieved."""
_LEAST_SPREAD = 0.02
"""Variance of the decodes of a step, relative to their mean squared, from which on their cost is taken to be known."""
_SIZE = 4
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class StepShape:
    """What the time of a step depends on.

    prefill_tokens  tokens of all prefills
    num_decodes     tokens of all decodes: one each, and its drafts
    num_attended    pairs of a computed token and a cached position that it attends to
    """

    prefill_tokens: int
    num_decodes: int
    num_attended: float

    @classmethod
    def of(cls, plan: StepPlan) -> StepShape:
        prefill_tokens = num_decodes = 0
        num_attended = 0.0
        for share in plan.sequences:
            num_new = share.num_new
            if share.kind is ShareKind.DECODE:
                num_decodes += num_new
                num_attended += num_new * share.num_computed
            else:
                prefill_tokens += num_new
                num_attended += num_new * (share.num_computed + 0.5 * num_new)
        return cls(prefill_tokens, num_decodes, num_attended)

    def __add__(self, other: StepShape) -> StepShape:
        return StepShape(
            self.prefill_tokens + other.prefill_tokens,
            self.num_decodes + other.num_decodes,
            self.num_attended + other.num_attended,
        )


class StepCosts(NamedTuple):
    """Seconds: of a step for itself, per prefill token, per decode, per attended position."""

    base: float
    prefill: float
    decode: float
    attended: float

    def work_s(self, shape: StepShape) -> float:
        """Seconds of what is computed, without those of the steps for themselves."""
        decode_s = self.decode * shape.num_decodes
        return self.prefill * shape.prefill_tokens + decode_s + self.attended * shape.num_attended


class StepTimeModel:
    """seconds = base + a * prefill tokens + b * decodes + c * attended positions, fitted by least squares, none below 0.

    The squares are those of relative errors: each observation is divided by its time, so that a decode step of 5 ms counts as
    much as a prefill step of 500 ms, and a step that stalled (its row becomes tiny) hardly counts at all.

    Kept are the normal equations, matrix * coefficients = target, in which old steps fade. The coefficients are found one by
    one, each as what the others leave of it and no less than 0. To cut them off at 0 after an unbounded fit would not do: what
    is cut from one must be taken back from the others at once, or the next step asks for still more of them.
    What is known of a coefficient never fades below the prior's precision: a feature that is not seen for long (no prefill for
    an hour) keeps its value, and is learned anew without jumps.
    """

    def __init__(self) -> None:
        self._theta = list(_PRIOR_S)
        self._floor = [_NOISE / (value * _PRIOR_SPREAD) ** 2 for value in _PRIOR_S]
        self._matrix = [[self._floor[i] if i == j else 0.0 for j in range(_SIZE)] for i in range(_SIZE)]
        self._target = [floor * value for floor, value in zip(self._floor, _PRIOR_S, strict=True)]
        self.num_observed = 0
        self._rows = [0.0, 0.0, 0.0]
        """Of steps of decodes alone, each fading: their number, the sum of their tokens, and of the squares of that."""

    @property
    def costs(self) -> StepCosts:
        """What the steps so far say, as of now."""
        return StepCosts(*self._theta)

    @property
    def knows_rows(self) -> bool:
        """Whether steps of different sizes have told what a decode adds to a step. While all have one size, nothing does."""
        count, total, squares = self._rows
        return squares * count > (1.0 + _LEAST_SPREAD) * total * total

    def predict(self, shape: StepShape) -> float:
        """Seconds of a step of this shape."""
        costs = self.costs
        return costs.base + costs.work_s(shape)

    def prefill_s(self, num_tokens: int, context: int) -> float:
        """Seconds that num_tokens prompt tokens behind `context` cached ones add to the steps they are computed in."""
        _, prefill, _, attended = self._theta
        return prefill * num_tokens + attended * num_tokens * (context + 0.5 * num_tokens)

    def prefill_tokens_within(self, seconds: float, context: int) -> int:
        """Most prompt tokens behind `context` cached ones whose prefill_s is within `seconds`; 0 when there is no time."""
        if seconds <= 0.0:
            return 0
        _, prefill, _, attended = self._theta
        linear, quadratic = prefill + attended * context, 0.5 * attended
        # The stable form of the positive root: it has no division by a quadratic term that may be zero.
        root = linear + math.sqrt(linear * linear + 4.0 * quadratic * seconds)
        return int(min(2.0 * seconds / root, 2.0**31)) if root > 0.0 else 2**31

    def observe(self, shape: StepShape, seconds: float) -> None:
        """Take in one measured step."""
        if not 0.0 < seconds < math.inf:
            return
        self.num_observed += 1
        if not shape.prefill_tokens:
            rows, size = self._rows, shape.num_decodes
            rows[0] = _FORGETTING * rows[0] + 1.0
            rows[1], rows[2] = _FORGETTING * rows[1] + size, _FORGETTING * rows[2] + size * size
        row = (1.0 / seconds, shape.prefill_tokens / seconds, shape.num_decodes / seconds, shape.num_attended / seconds)
        theta, target, floor = self._theta, self._target, self._floor
        for i, (line, own) in enumerate(zip(self._matrix, row, strict=True)):
            # Written out: a scheduler does this after most steps, and a fourth loop over four values takes three times as long.
            a, b, c, d = line
            line[0], line[1] = _FORGETTING * a + own * row[0], _FORGETTING * b + own * row[1]
            line[2], line[3] = _FORGETTING * c + own * row[2], _FORGETTING * d + own * row[3]
            target[i] = _FORGETTING * target[i] + own
            missing = floor[i] - line[i]
            if missing > 0.0:
                line[i] += missing
                target[i] += missing * theta[i]
        self._solve()

    def _solve(self) -> None:
        """A few rounds from the last solution. It moves little from step to step, and the next step goes on from here."""
        theta, target = self._theta, self._target
        p, q, r, s = theta
        for _ in range(_ROUNDS):
            for i, (a, b, c, d) in enumerate(self._matrix):
                diagonal = self._matrix[i][i]
                value = theta[i] + (target[i] - a * p - b * q - c * r - d * s) / diagonal
                theta[i] = min(max(0.0, value), _MOST_PRIORS * _PRIOR_S[i])
                p, q, r, s = theta
