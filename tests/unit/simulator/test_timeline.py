"""The timeline keeps integrals, whatever the span."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.simulator.timeline import Timeline


def test_bins_merge_without_losing_anything() -> None:
    timeline = Timeline(width_s=0.01)
    now_s = 0.0
    for step in range(5000):
        timeline.add(now_s, now_s + 0.05, running=step % 7, waiting=1, used_blocks=10, tokens=4)
        now_s += 0.05
    series = timeline.series(now_s)
    widths = np.diff([*series.time_s, now_s])
    assert len(series.time_s) <= 512
    assert float((series.output_tokens_per_s * widths).sum()) == pytest.approx(20_000)
    assert float((series.running * widths).sum()) == pytest.approx(0.05 * sum(step % 7 for step in range(5000)))
    assert series.waiting == pytest.approx(np.ones(len(widths)))
    assert series.used_blocks == pytest.approx(np.full(len(widths), 10.0))


def test_a_gap_is_empty() -> None:
    timeline = Timeline(width_s=1.0)
    timeline.add(0.0, 1.0, 2, 0, 3, 5)
    timeline.add(9.0, 10.0, 2, 0, 3, 5)
    assert timeline.series(10.0).running[:10].tolist() == [2.0, *[0.0] * 8, 2.0]
