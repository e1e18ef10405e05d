"""octavo eval perplexity: what it prints and writes, and what it refuses, on a tiny random model."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from tests.fakes import write_model

from octavo.cli.main import run

TEXT = "The quick brown fox jumps over the lazy dog. " * 5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_model(tmp_path_factory.mktemp("model")))


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return str(path)


def evaluate(model: str, *arguments: str) -> int:
    options = ["--load-format", "dummy", "--context", "128", "--device", "reference"]
    return run(["eval", "perplexity", model, *options, *arguments])


def test_figures_are_printed_and_written(model: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "figures.json"
    assert (
        evaluate(model, "--file", text, "--quantization", "int4", "--compare-dtype", "float32", "--output-json", str(output))
        == 0
    )
    figures, printed = json.loads(output.read_text()), capsys.readouterr().out
    assert figures["num_tokens"] == len(TEXT) - 1
    assert figures["quantization"] == "int4"
    comparison = figures["comparison"]
    assert math.isclose(comparison["ratio"], figures["perplexity"] / comparison["perplexity"], rel_tol=1e-9)
    assert 0 < comparison["mean_kl"] < 1 and 0 <= comparison["equal_top_tokens"] <= 1
    for line in (f"perplexity        {figures['perplexity']:.4f}", f"ratio             {comparison['ratio']:.5f}", "mean KL"):
        assert line in printed


def test_several_files_are_scored_apart_and_can_be_shortened(
    model: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(model, "--file", text, "--file", text, "--max-tokens", "50") == 0
    assert f"scored            {2 * 49} tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--file", "/nowhere/text"], "--file /nowhere/text cannot be read: No such file"),
        (["--file", "TEXT", "--context", "100000"], "--context 100000 is more than the model's context of 256 tokens"),
        (["--file", "TEXT", "--max-model-len", "100"], "--context 128 is more than --max-model-len of 100 tokens"),
        (["--file", "TEXT", "--stride", "128"], "--stride 128 would pass over tokens; with --context 128 use 127"),
        (["--file", "TEXT", "--compare-dtype", "int8"], "--compare-dtype"),
        ([], "--file"),
    ],
)
def test_mistakes_are_one_line(
    model: str, text: str, arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(model, *[text if argument == "TEXT" else argument for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert part in error and error.count("\n") == 1


@pytest.mark.parametrize(("content", "part"), [(b"", "no token to score"), (b"\xff\xfe", "not a UTF-8 text")])
def test_texts_that_cannot_be_scored_are_refused(
    model: str, tmp_path: Path, content: bytes, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    assert evaluate(model, "--file", str(path)) == 2
    assert part in capsys.readouterr().err
