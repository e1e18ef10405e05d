"""Percentiles from bins are those of the values, within a bin."""

from __future__ import annotations

import random

import numpy as np
import pytest

from octavo.simulator.histogram import Histogram


def test_percentiles_are_within_half_a_percent() -> None:
    rng = random.Random(1)
    values = [rng.lognormvariate(-4.0, 1.5) for _ in range(20_000)]
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    for percent in (1, 50, 90, 99, 100):
        assert histogram.percentile(percent) == pytest.approx(float(np.percentile(values, percent)), rel=0.01)
    assert histogram.mean_s == pytest.approx(float(np.mean(values))) and histogram.count == len(values)


def test_nothing_and_the_extremes() -> None:
    histogram = Histogram()
    assert histogram.percentile(50) == 0.0 and histogram.mean_s == 0.0
    histogram.add(0.0)
    histogram.add(1e9)
    assert histogram.percentile(100) <= 1e9 and histogram.high_s == 1e9 and histogram.low_s == 0.0
