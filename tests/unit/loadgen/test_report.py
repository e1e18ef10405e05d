"""The report: percentiles and totals."""

from __future__ import annotations

import pytest

from octavo.loadgen.client import Timing
from octavo.loadgen.report import percentile, summarize, table


def timing(times: list[float], end_s: float, tokens: int, error: str | None = None) -> Timing:
    return Timing(0.0, 10, token_times=times, prompt_tokens=12, output_tokens=tokens, end_s=end_s, error=error)


@pytest.mark.parametrize(("percent", "expected"), [(0, 1.0), (50, 2.5), (90, 3.7), (100, 4.0)])
def test_percentiles_interpolate_as_numpy_does(percent: float, expected: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], percent) == pytest.approx(expected)


def test_summary_counts_good_requests_only() -> None:
    timings = [timing([0.1, 0.2, 0.3], 0.3, 3), timing([0.3, 0.5], 0.5, 2), timing([], 0.1, 0, "boom")]
    summary = summarize(timings, 2.0)
    assert (summary["completed"], summary["failed"], summary["errors"]) == (2, 1, ["boom"])
    assert (summary["total_input_tokens"], summary["total_output_tokens"], summary["output_throughput"]) == (24, 5, 2.5)
    assert summary["mean_ttft_ms"] == pytest.approx(200.0) and summary["mean_tpot_ms"] == pytest.approx(150.0)
    assert summary["median_itl_ms"] == pytest.approx(100.0) and summary["p99_e2el_ms"] == pytest.approx(498.0)


def test_table_holds_every_figure_even_when_all_failed() -> None:
    text = table(summarize([timing([], 0.1, 0, "boom")], 1.0))
    assert "Failed requests:" in text and "P99 ITL (ms):" in text
