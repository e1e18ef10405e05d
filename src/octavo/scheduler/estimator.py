"""Estimator: how long a sequence will still take, in tokens and in seconds, and what fits into a step of a given time."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from octavo.scheduler.output_length import OutputLengths
from octavo.scheduler.step_time import StepShape, StepTimeModel
from octavo.sequence import Sequence
from octavo.step import ScheduledSequence, ShareKind, StepPlan

_SMOOTHING = 0.05
"""Weight of the newest step in the running mean: the last 20 steps count for two thirds."""
_DECODES_PER_OBSERVATION = 4
"""Of steps of decodes alone, which follow each other by the thousand and are all alike, every fourth is fitted: a fit is a
noticeable part of the step of a small model. The first _ALL_OBSERVED steps are all fitted, and those that verify drafts."""
_ALL_OBSERVED = 64
_MIN_PREFILL_TOKENS = 8
"""Prompt tokens a step takes even where decodes alone fill the target: with none, prompts would wait for decodes to end."""


_TRUST_SMOOTHING = 0.1
_MOST_RATIO = 4.0
"""A step that stalled counts as four times as long as expected, however long it was."""
_GROWTH = 2
_FORGETTING = 0.99


class _ModelTrust:
    """How far the step-time model can be trusted with prompt tokens beside decodes.

    Learns from steps that had both, which are those that a latency target is about.

    slack   seconds that such a step takes for each second the model says: the running mean and the mean deviation from it, so
            that a machine which is not alone leaves room for its own unrest
    tested  prompt tokens that such steps took lately; a larger share is tried in steps of twice that, for beyond what was
            measured the model is a guess that one wrong step would make everybody wait for
    """

    def __init__(self) -> None:
        self._mean = 1.0
        self._deviation = 0.0
        self._tested = 0.0

    @property
    def slack(self) -> float:
        return self._mean + self._deviation

    def limit(self, least: int) -> int:
        """Most prompt tokens of the next such step; `least` may be taken at any time."""
        return max(least, int(_GROWTH * max(self._tested, least)))

    def observe(self, shape: StepShape, expected_s: float, seconds: float) -> None:
        """Take in a step that had both, and what the model said before."""
        if expected_s <= 0.0:
            return
        ratio = min(_MOST_RATIO, seconds / expected_s)
        self._deviation += _TRUST_SMOOTHING * (abs(ratio - self._mean) - self._deviation)
        self._mean += _TRUST_SMOOTHING * (ratio - self._mean)
        self._tested = max(float(shape.prefill_tokens), _FORGETTING * self._tested)


class Estimator:
    """Learns from settled steps and ended sequences. One per scheduler; policies, preemption and the tuner read it.

    Pure: it is told what happened and how long it took, and reads no clock.
    """

    def __init__(self) -> None:
        self.step_time = StepTimeModel()
        self.output_lengths = OutputLengths()
        self._trust = _ModelTrust()
        self._decode_step_s: float | None = None
        self._num_decode_steps = 0

    @property
    def decode_step_s(self) -> float:
        """Running mean of the seconds between two tokens of a running sequence."""
        return self._decode_step_s or self.step_time.predict(StepShape(0, 1, 0.0))

    def observe_step(self, plan: StepPlan, seconds: float, num_accepted: int = 0) -> None:
        """A step was computed in full. num_accepted: drafts that became tokens."""
        shape = StepShape.of(plan)
        if shape.num_decodes and shape.prefill_tokens:
            self._trust.observe(shape, self.step_time.predict(shape), seconds)
        is_due = self._num_decode_steps < _ALL_OBSERVED or self._num_decode_steps % _DECODES_PER_OBSERVATION == 0
        self._num_decode_steps += not shape.prefill_tokens
        if is_due or shape.prefill_tokens or shape.num_decodes > len(plan.sequences):
            self.step_time.observe(shape, seconds)
        if shape.num_decodes:
            last, token_s = self._decode_step_s, seconds
            if num_accepted:
                num_decodes = sum(share.kind is ShareKind.DECODE for share in plan.sequences)
                token_s *= num_decodes / (num_decodes + num_accepted)
            self._decode_step_s = token_s if last is None else last + _SMOOTHING * (token_s - last)

    def observe_end(self, sequence: Sequence) -> None:
        """A sequence ended by a stop or at its length."""
        self.output_lengths.observe(sequence)

    def remaining_s(self, sequence: Sequence, num_cached: int = 0) -> float:
        """Seconds from now to its last token if it ran without waiting.

        num_cached: tokens that a waiting sequence would find in the prefix cache.
        """
        num_known = max(sequence.num_computed, num_cached)
        num_left = self.output_lengths.expected(sequence) - len(sequence.output_token_ids)
        num_prefill = sequence.num_tokens - num_known
        prefill_s = self.step_time.prefill_s(num_prefill, num_known) if num_prefill > 1 else 0.0
        return prefill_s + max(1, num_left) * self.decode_step_s

    def prefill_budget(self, target_s: float, decodes: Collection[ScheduledSequence], prefills: Iterable[Sequence]) -> int:
        """Prompt tokens that fit beside these decodes into a step of target_s seconds.

        prefills: running sequences that could take them; the longest context among them is what is counted with.
        """
        num_rows = sum(share.num_new for share in decodes)
        num_attended = sum(share.num_new * share.num_computed for share in decodes)
        context = max((sequence.num_computed for sequence in prefills), default=0)
        left_s = target_s / self._trust.slack - self.step_time.predict(StepShape(0, num_rows, num_attended))
        wanted = self.step_time.prefill_tokens_within(left_s, context)
        return max(_MIN_PREFILL_TOKENS, min(wanted, self._trust.limit(_MIN_PREFILL_TOKENS)))
