"""ModelTrust: how far the step-time model can be trusted with prompt tokens beside decodes."""

from __future__ import annotations

from octavo.scheduler.step_time import StepShape

_SMOOTHING = 0.1
_MOST_RATIO = 4.0
"""A step that stalled counts as four times as long as expected, however long it was."""
_GROWTH = 2
_FORGETTING = 0.99


class ModelTrust:
    """Learns from steps that had decodes and prompt tokens, which are those that a latency target is about.

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
        """Take in a step and what the model said before."""
        if not shape.num_decodes or not shape.prefill_tokens or expected_s <= 0.0:
            return
        ratio = min(_MOST_RATIO, seconds / expected_s)
        self._deviation += _SMOOTHING * (abs(ratio - self._mean) - self._deviation)
        self._mean += _SMOOTHING * (ratio - self._mean)
        self._tested = max(float(shape.prefill_tokens), _FORGETTING * self._tested)
