"""Buckets: a histogram that costs one addition. Whoever reads it sums up; it has no lock, for it belongs to one thread."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

STEP_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
STEP_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
STAGE_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Buckets:
    """counts: by bucket, those beyond the last bound come last; total: the sum of all values."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def grow(self, counts: Sequence[int], last: Sequence[int], total: float) -> None:
        """Add what another histogram of these bounds has gained since it had the counts `last` (empty: since its start)."""
        before = last or [0] * len(counts)
        for index, (count, earlier) in enumerate(zip(counts, before, strict=True)):
            self.counts[index] += max(0, count - earlier)
        self.total += max(0.0, total)
