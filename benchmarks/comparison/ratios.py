"""Ratios between two contestants over rounds that ran next to each other.

A shared machine drifts by tens of per cent within minutes, so absolute figures of different moments must not be divided. Round
i of one contestant is compared with round i of the other only, and the ratio is quoted as median with its smallest and largest.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

Value = float | None
"""A figure of one round; None where the contestant failed or does not have it."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, smallest and largest of `count` values."""

    median: float
    low: float
    high: float
    count: int

    def as_dict(self) -> dict[str, float]:
        return {"median": self.median, "min": self.low, "max": self.high, "count": self.count}


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure that is compared. A ratio above 1 always means that octavo is ahead.

    key               name in the stored figures
    title, unit       for people
    higher_is_better  throughputs yes, latencies and memory no
    """

    key: str
    title: str
    unit: str
    higher_is_better: bool = True


def spread(values: Sequence[Value]) -> Spread | None:
    """The spread of the values that exist; None if none does."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(statistics.median(known), min(known), max(known), len(known))


def ratio_spread(ours: Sequence[Value], theirs: Sequence[Value], metric: Metric) -> Spread | None:
    """Spread of the per-round ratios; rounds in which either side has no figure, or zero, are left out."""
    ratios: list[Value] = []
    for our_value, their_value in zip(ours, theirs, strict=True):
        if our_value and their_value:
            ratios.append(our_value / their_value if metric.higher_is_better else their_value / our_value)
    return spread(ratios)
