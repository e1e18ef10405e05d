"""Histogram: percentiles of hundreds of millions of gaps between tokens in a few kilobytes."""

from __future__ import annotations

import math

import numpy as np

_LOW_S = 1e-7
_BINS_PER_E = 200
_NUM_BINS = 5600
"""Bins of 0.5% width from 0.1 us to 1.4e5 s; what lies beyond counts in the last bin."""


class Histogram:
    """Weighted durations. Mean, count and extremes are exact; percentiles are within 0.5%."""

    __slots__ = ("_weights", "count", "high_s", "low_s", "total_s")

    def __init__(self) -> None:
        self._weights = [0] * _NUM_BINS
        self.count = 0
        self.total_s = 0.0
        self.low_s = math.inf
        self.high_s = 0.0

    def add(self, seconds: float, weight: int = 1) -> None:
        """`weight` durations of `seconds` each."""
        index = int(math.log(seconds / _LOW_S) * _BINS_PER_E) if seconds > _LOW_S else 0
        self._weights[index if index < _NUM_BINS else _NUM_BINS - 1] += weight
        self.count += weight
        self.total_s += seconds * weight
        if seconds < self.low_s:
            self.low_s = seconds
        if seconds > self.high_s:
            self.high_s = seconds

    @property
    def mean_s(self) -> float:
        return self.total_s / self.count if self.count else 0.0

    def percentile(self, percent: float) -> float:
        """The middle of the bin that holds the percentile, within the extremes. 0.0 for no durations."""
        if not self.count:
            return 0.0
        cumulative = np.cumsum(np.asarray(self._weights, dtype=np.int64))
        index = int(np.searchsorted(cumulative, max(1.0, self.count * percent / 100.0)))
        middle_s = _LOW_S * math.exp((index + 0.5) / _BINS_PER_E)
        return min(max(middle_s, self.low_s), self.high_s)
