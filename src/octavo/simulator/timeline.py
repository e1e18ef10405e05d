"""Timeline: running, waiting, used blocks and tokens over time, in a bounded number of bins whatever the span."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_MAX_BINS = 512


@dataclass(frozen=True, slots=True)
class Series:
    """The timeline for reading: time-weighted means per bin, summed over replicas; tokens per second. Shapes [num_bins]."""

    time_s: NDArray[np.float64]
    running: NDArray[np.float64]
    waiting: NDArray[np.float64]
    used_blocks: NDArray[np.float64]
    output_tokens_per_s: NDArray[np.float64]


class Timeline:
    """Integrals per bin of `width` seconds. When time runs beyond the last bin, pairs of bins are merged and width doubles."""

    __slots__ = ("_bins", "_width_s")

    def __init__(self, width_s: float = 1e-3) -> None:
        self._width_s = width_s
        self._bins: list[list[float]] = [[0.0, 0.0, 0.0, 0.0] for _ in range(_MAX_BINS)]

    def add(self, start_s: float, end_s: float, running: int, waiting: int, used_blocks: int, tokens: int) -> None:
        """What held from start to end on one replica; tokens came out at an even rate."""
        while end_s >= self._width_s * _MAX_BINS:
            self._halve()
        width_s = self._width_s
        index, last = int(start_s / width_s), int(end_s / width_s)
        span_s = end_s - start_s
        while index <= last:
            part_s = min(end_s, (index + 1) * width_s) - max(start_s, index * width_s)
            if part_s > 0.0:
                sums = self._bins[index]
                sums[0] += running * part_s
                sums[1] += waiting * part_s
                sums[2] += used_blocks * part_s
                sums[3] += tokens * part_s / span_s
            index += 1

    def series(self, end_s: float) -> Series:
        """All bins up to end_s."""
        count = min(_MAX_BINS, int(end_s / self._width_s) + 1)
        sums = np.asarray(self._bins[:count], dtype=np.float64)
        widths = np.full(count, self._width_s, dtype=np.float64)
        widths[-1] = max(end_s - (count - 1) * self._width_s, 1e-12)
        means: NDArray[np.float64] = sums / widths[:, None]
        return Series(np.arange(count, dtype=np.float64) * self._width_s, means[:, 0], means[:, 1], means[:, 2], means[:, 3])

    def _halve(self) -> None:
        bins = self._bins
        merged = [[a + b for a, b in zip(bins[i], bins[i + 1], strict=True)] for i in range(0, _MAX_BINS, 2)]
        self._bins = merged + [[0.0, 0.0, 0.0, 0.0] for _ in range(_MAX_BINS - len(merged))]
        self._width_s *= 2.0
