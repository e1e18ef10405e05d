"""octavo simulate and octavo tune from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.cli import main as cli

HEADER = "arrival,input_tokens,output_tokens,tenant\n"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "".join(f"{index * 0.3},{20 + index},{5 + index % 9},{'ab'[index % 2]}\n" for index in range(40)))
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.run(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_simulate_prints_figures_and_a_chart(capsys: pytest.CaptureFixture[str], trace: str) -> None:
    code, out, _ = run(capsys, "simulate", trace, "--replicas", "2", "--routing", "least-loaded", "--num-blocks", "100")
    assert code == 0
    assert all(part in out for part in ("40 requests", "TTFT (s)", "fairness", "running sequences", "2 replicas, least-loaded"))


def test_caching_changes_nothing_where_no_prompt_begins_like_another(capsys: pytest.CaptureFixture[str], trace: str) -> None:
    figures = []
    for caching in ("--enable-prefix-caching", "--no-enable-prefix-caching"):
        code, out, _ = run(capsys, "simulate", trace, "--json", "--rate-scale", "2", caching)
        assert code == 0
        figures.append(json.loads(out))
    assert figures[0]["ttft_s"] == figures[1]["ttft_s"] and figures[0]["num_requests"] == 40


def test_num_requests_repeats_the_trace(capsys: pytest.CaptureFixture[str], trace: str) -> None:
    _, out, _ = run(capsys, "simulate", trace, "--json", "--num-requests", "100", "--max-concurrency", "3")
    assert json.loads(out)["num_requests"] == 100


def test_tune_prints_flags_that_keep_the_bounds(capsys: pytest.CaptureFixture[str], trace: str) -> None:
    code, out, _ = run(capsys, "tune", trace, "--itl-p99", "500", "--ttft-p90", "5", "--json")
    result = json.loads(out)
    assert code == 0 and result["best"]["bounds_hold"] and result["flags"].startswith("--max-num-seqs ")
    code, out, _ = run(capsys, "tune", trace, "--goal", "latency", "--limit", "10")
    assert code == 0 and "E2E mean (s)" in out and "--block-size" in out
    code, out, _ = run(capsys, "tune", trace, "--itl-p99", "0.001", "--limit", "5")
    assert "No settings were found" in out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "give a TRACE"),
        (["nowhere.csv"], "nowhere.csv: No such file"),
        (["TRACE", "--calibrate", "x"], "run it without a TRACE"),
        (["TRACE", "--profile", "nowhere.json"], "--profile nowhere.json"),
        (["TRACE", "--rate-scale", "0"], "--rate-scale"),
        (["TRACE", "--max-model-len", "20"], "longer than --max-model-len 20"),
        (["TRACE", "--max-num-queued-requests", "3"], "--max-num-queued-requests"),
    ],
)
def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], trace: str, arguments: list[str], part: str) -> None:
    code, _, err = run(capsys, "simulate", *(trace if argument == "TRACE" else argument for argument in arguments))
    assert code == 2 and part in err and err.count("\n") == 1
