"""octavo benchmark: the phases add up to the whole, the trace is Chrome's, and there is advice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.cli.benchmark import EXECUTION, POSTPROCESSING, PREPROCESSING, Span, advice, phase_seconds, phase_table
from octavo.cli.main import run
from octavo.ops.phase_cost import PhaseCost


def test_a_profile_has_phases_ops_a_trace_and_advice(
    smollm2_gguf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths = [
        "--input-len",
        "12",
        "--output-len",
        "3",
        "--batch-size",
        "2",
        "--kv-cache-memory",
        "0.03",
        "--max-model-len",
        "64",
    ]
    files = ["--trace", str(tmp_path / "trace"), "--output-json", str(tmp_path / "figures")]
    assert run(["benchmark", "--model", str(smollm2_gguf), "--profile", "--verbose", *lengths, *files]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in (PREPROCESSING, EXECUTION, POSTPROCESSING, "gemm", "advice: "))
    assert out.startswith("6 tokens for 2 prompts in ")
    figures = json.loads((tmp_path / "figures").read_text())
    assert sum(figures["phases"].values()) == pytest.approx(figures["seconds"])
    events = [event for event in json.loads((tmp_path / "trace").read_text())["traceEvents"] if event["ph"] == "X"]
    steps = [event for event in events if event["name"] == EXECUTION]
    # All prompt tokens, and two of three output tokens of each: the last one is never computed.
    assert sum(event["args"]["num_tokens"] for event in steps) >= 2 * 12 + 2 * 2
    assert all(event["dur"] >= 0 for event in events) and min(event["ts"] for event in events) == 0


def test_a_trace_that_cannot_be_written_is_refused(
    smollm2_gguf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths = [
        "--input-len",
        "4",
        "--output-len",
        "1",
        "--batch-size",
        "1",
        "--kv-cache-memory",
        "0.03",
        "--max-model-len",
        "64",
    ]
    assert run(["benchmark", str(smollm2_gguf), *lengths, "--trace", str(tmp_path)]) == 2
    assert "--trace" in capsys.readouterr().err


def test_the_table_shows_seconds_and_percent() -> None:
    spans = [
        Span(PREPROCESSING, 0.0, 1.0),
        Span(EXECUTION, 1.0, 2.0),
        Span(EXECUTION, 3.0, 4.0),
        Span(POSTPROCESSING, 7.0, 1.0),
    ]
    assert phase_seconds(spans) == {PREPROCESSING: 1.0, EXECUTION: 6.0, POSTPROCESSING: 1.0}
    assert [line.split()[-2:] for line in phase_table(spans)[1:]] == [
        ["1.0000", "12.5%"],
        ["6.0000", "75.0%"],
        ["1.0000", "12.5%"],
    ]


@pytest.mark.parametrize(
    ("spans", "costs", "batch_size", "words"),
    [
        ([Span(PREPROCESSING, 0, 1.0), Span(EXECUTION, 0, 1.0)], [], 64, "tokenising is a large part"),
        ([Span(POSTPROCESSING, 0, 1.0), Span(EXECUTION, 0, 1.0)], [], 64, "text and delivery are a large part"),
        ([Span(EXECUTION, 0, 1.0)], [], 1, "1 prompts at once"),
        ([Span(EXECUTION, 0, 1.0)], [PhaseCost("paged_attention", 1, 1.0, 0, 0)], 64, "attention takes 100%"),
        ([Span(EXECUTION, 0, 1.0)], [PhaseCost("gemm", 1, 1.0, 0, 0)], 64, "the dearest op is gemm"),
        ([Span(EXECUTION, 0, 1.0)], [], 64, "nothing stands out"),
    ],
)
def test_advice_follows_from_the_figures(spans: list[Span], costs: list[PhaseCost], batch_size: int, words: str) -> None:
    assert any(words in line for line in advice(spans, costs, batch_size))
