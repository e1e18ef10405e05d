"""The figures are those of the records."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.simulator.traces import COST, engine, random_trace

from octavo.errors import ConfigError
from octavo.simulator.fleet import FleetSpec, simulate
from octavo.simulator.summary import jain_index, summarize, table
from octavo.simulator.trace import make_trace


def test_figures_of_a_random_trace() -> None:
    trace, spec = random_trace(1, sharing=True), FleetSpec(engine=engine(num_blocks=24))
    recorder = simulate(trace, spec, COST)
    summary = summarize(trace, spec, recorder)
    ttft_s = np.asarray(recorder.first_token_s) - np.asarray(recorder.arrival_s)
    assert summary.ttft_s.p90 == pytest.approx(float(np.percentile(ttft_s, 90)))
    assert summary.output_tokens_per_s * summary.duration_s == pytest.approx(float(trace.num_output.sum()))
    assert 0.0 < summary.prefix_hit_rate < 1.0 and 0.0 < summary.mean_kv_usage <= summary.peak_kv_usage <= 1.0
    assert {tenant.tenant for tenant in summary.tenants} == {"a", "b"} and 0.5 <= summary.jain <= 1.0
    text = table(summary)
    assert "fairness" in text and "TTFT (s)" in text and f"preemptions     {summary.num_preemptions}" in text


def test_jain_is_one_for_equals_and_one_over_n_for_one_taker() -> None:
    assert jain_index(np.array([3.0, 3.0, 3.0])) == pytest.approx(1.0)
    assert jain_index(np.array([5.0, 0.0, 0.0, 0.0])) == pytest.approx(0.25)


def test_nothing_but_refusals_is_an_error() -> None:
    trace, spec = make_trace("t", [0.0], [500], [1]), FleetSpec(engine=engine())
    with pytest.raises(ConfigError, match="longer than --max-model-len 128"):
        summarize(trace, spec, simulate(trace, spec, COST))


def test_a_load_of_single_tokens_has_no_gaps() -> None:
    trace, spec = make_trace("t", [0.0, 1.0], [5, 5], [1, 1]), FleetSpec(engine=engine())
    summary = summarize(trace, spec, simulate(trace, spec, COST))
    assert summary.itl_s.p99 == summary.tpot_s.p99 == 0.0 and summary.ttft_s == summary.e2e_s
