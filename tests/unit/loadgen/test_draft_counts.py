"""Draft counts: read off a server's metrics, and told as a report."""

from __future__ import annotations

import pytest

from octavo.loadgen.draft_counts import DraftCounts, draft_rows

METRICS = """# HELP octavo:spec_decode_num_drafts_total Times.
octavo:spec_decode_num_drafts_total{model_name="m"} 10.0
octavo:spec_decode_num_draft_tokens_total{model_name="m"} 40.0
octavo:spec_decode_num_accepted_tokens_total{model_name="m"} 12.0
octavo:spec_decode_num_accepted_tokens_per_pos_total{model_name="m",position="0"} 8.0
octavo:spec_decode_num_accepted_tokens_per_pos_total{model_name="m",position="1"} 4.0
octavo:spec_decode_num_accepted_tokens_per_pos_total{model_name="m",position="2"} 0.0
"""


def test_the_counts_of_a_server_are_read() -> None:
    assert DraftCounts.read(METRICS) == DraftCounts(10, 40, [8, 4, 0])


@pytest.mark.parametrize("prefix", ["octavo", "vllm"])
def test_vllms_metrics_are_read_too(prefix: str) -> None:
    assert DraftCounts.read(METRICS.replace("octavo", prefix).replace('model_name="m",', 'engine="0",')).num_draft_tokens == 40


@pytest.mark.parametrize("text", ["", "nothing here", 'octavo:num_steps_total{model_name="m"} 7.0'])
def test_a_server_without_such_metrics_has_none(text: str) -> None:
    counts = DraftCounts.read(text)
    assert counts.figures() == {} and draft_rows(counts.figures()) == []


def test_a_run_is_what_came_on_top() -> None:
    run = DraftCounts.read(METRICS).since(DraftCounts(5, 20, [5]))
    figures = run.figures()
    assert (run.num_drafts, run.num_draft_tokens, run.accepted_at) == (5, 20, [3, 4, 0])
    assert figures["spec_decode_acceptance_rate"] == pytest.approx(35.0)
    assert figures["spec_decode_acceptance_length"] == pytest.approx(2.4)
    assert figures["spec_decode_per_position_acceptance_rates"] == [0.6, 0.8]
    assert ("Acceptance by position", "0.60 0.80") in draft_rows(figures)
