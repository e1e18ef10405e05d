"""Ratios over rounds."""

from __future__ import annotations

import pytest
from comparison.ratios import Metric, ratio_spread, spread

SPEED = Metric("tok_s", "throughput", "tok/s")
LATENCY = Metric("ms", "latency", "ms", higher_is_better=False)


def test_spread_is_median_smallest_and_largest_of_the_values_that_exist() -> None:
    found = spread([3.0, None, 1.0, 10.0])
    assert found is not None
    assert found.as_dict() == {"median": 3.0, "min": 1.0, "max": 10.0, "count": 3}


def test_spread_of_nothing_is_none() -> None:
    assert spread([None, None]) is None
    assert spread([]) is None


def test_ratios_compare_the_two_values_of_a_round_and_no_others() -> None:
    # The machine became twice as slow in the second round: the ratio does not notice.
    found = ratio_spread([100.0, 50.0], [50.0, 25.0], SPEED)
    assert found is not None
    assert (found.low, found.median, found.high) == (2.0, 2.0, 2.0)


def test_a_lower_latency_is_a_ratio_above_one() -> None:
    found = ratio_spread([10.0], [40.0], LATENCY)
    assert found is not None
    assert found.median == pytest.approx(4.0)


def test_rounds_in_which_a_side_has_no_figure_are_left_out() -> None:
    found = ratio_spread([10.0, None, 30.0, 5.0], [5.0, 5.0, None, 0.0], SPEED)
    assert found is not None
    assert (found.median, found.count) == (2.0, 1)
    assert ratio_spread([None], [1.0], SPEED) is None
