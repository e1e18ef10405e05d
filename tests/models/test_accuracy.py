"""The gate of the default path: perplexity at most 0.5% above float32 on the same stored weights (the embedded model)."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from octavo.cli.main import run

TEXT = Path(__file__).parents[2] / "LICENSE"
MAX_RATIO = 1.005
MAX_KL = 0.01
"""Nats; about 0.004 are measured. Less noisy than the ratio, whose standard error is 0.002 on this text."""
MIN_EQUAL_TOP = 0.93

pytestmark = pytest.mark.skipif(importlib.util.find_spec("octavo._native") is None, reason="needs the native extension")


def test_the_default_path_is_as_good_as_float32_on_the_same_weights(smollm2_gguf: Path, tmp_path: Path) -> None:
    output = tmp_path / "figures.json"
    arguments = ["eval", "perplexity", str(smollm2_gguf), "--file", str(TEXT), "--context", "1024"]
    assert run([*arguments, "--stride", "1023", "--compare-dtype", "float32", "--output-json", str(output)]) == 0
    figures = json.loads(output.read_text())
    assert figures["num_tokens"] == 2214
    assert figures["perplexity"] < 30
    assert figures["comparison"]["ratio"] <= MAX_RATIO
    assert figures["comparison"]["mean_kl"] <= MAX_KL
    assert figures["comparison"]["equal_top_tokens"] >= MIN_EQUAL_TOP
