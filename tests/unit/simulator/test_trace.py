"""A trace can be cut, repeated and sped up."""

from __future__ import annotations

import pytest
from tests.unit.simulator.traces import random_trace

from octavo.simulator.trace import first, make_trace, repeated, scaled


def test_first_keeps_the_beginning() -> None:
    trace = random_trace(1, sharing=True)
    cut = first(trace, 10)
    assert len(cut) == 10 and cut.shared == (trace.shared or ())[:10]
    assert first(trace, 1000) is trace


def test_scaled_arrives_faster() -> None:
    trace = random_trace(2)
    assert scaled(trace, 4.0).arrival_s.tolist() == pytest.approx((trace.arrival_s / 4.0).tolist())
    assert scaled(trace, 1.0) is trace


def test_repeated_goes_on_after_a_mean_gap_with_prefixes_of_its_own() -> None:
    trace = make_trace("t", [0.0, 1.0, 2.0], [4, 5, 6], [1, 2, 3], shared=[((0, 4),), ((3, 2),), ()])
    longer = repeated(trace, 7)
    assert longer.arrival_s.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert longer.num_prompt.tolist() == [4, 5, 6, 4, 5, 6, 4]
    assert longer.shared == (((0, 4),), ((3, 2),), (), ((4, 4),), ((7, 2),), (), ((8, 4),))
    assert len(repeated(trace, 2)) == 2


def test_describe_names_the_load() -> None:
    text = make_trace("burst", [0.0, 0.0], [4, 6], [1, 3]).describe()
    assert "burst: 2 requests, all at once" in text and "prompt 5 tokens on average (longest 6)" in text
