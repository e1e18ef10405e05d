"""SmolLM2 and Gemma 3 270M in float32 on the native backend against transformers: logits and 64 greedy tokens of 20 prompts.

Both from the GGUF file and from a Hugging Face folder that the `gguf` package's own dequantisation fills.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import gguf_to_folder
from tests.models.runner import Runner

GOLDEN = Path(__file__).parent.parent / "golden" / "models"
TOLERANCE = 1e-4
"""Largest difference of a logit, relative to the largest magnitude among the golden logits of that position."""
MAX_MODEL_LEN = 1088

pytestmark = pytest.mark.skipif(importlib.util.find_spec("octavo._native") is None, reason="needs the native extension")


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A folder that is gone after the test: float32 weights of a real model are a gigabyte, and tmp_path keeps three runs."""
    yield tmp_path / "model"
    shutil.rmtree(tmp_path / "model", ignore_errors=True)


class Golden:
    """One model's golden file."""

    def __init__(self, name: str) -> None:
        self.prompts: list[dict[str, Any]] = json.loads((GOLDEN / f"{name}.json").read_text())["prompts"]
        with np.load(GOLDEN / f"{name}.npz") as arrays:
            self.arrays = dict(arrays)

    def check_logits(self, index: int, found: np.ndarray) -> None:
        """found: logits of the last position of prompt index, float32 [vocab]."""
        bound = TOLERANCE * self.prompts[index]["max_abs"]
        top_ids = self.arrays[f"{index}/top_ids"]
        assert np.abs(found[self.arrays["fixed_ids"]] - self.arrays[f"{index}/fixed"]).max() <= bound
        assert np.abs(found[top_ids] - self.arrays[f"{index}/top"]).max() <= bound
        assert np.abs(found).max() == pytest.approx(self.prompts[index]["max_abs"], abs=bound)


def check_model(path: Path, golden: Golden, count: int, num_greedy: int) -> None:
    """The first `count` prompts: logits one by one, then greedy tokens in one batch."""
    runner = Runner(path, "cpu", max_model_len=MAX_MODEL_LEN, max_seqs=count)
    firsts = {}
    for index, prompt in enumerate(golden.prompts[:count]):
        length = len(prompt["token_ids"])
        runner.add(index, prompt["token_ids"])
        found = runner.prefill(index, length, [length - 1])[0]
        golden.check_logits(index, found)
        firsts[index] = int(found.argmax())
    decoded = runner.greedy(firsts, num_greedy)
    assert decoded == {index: prompt["greedy"][:num_greedy] for index, prompt in enumerate(golden.prompts[:count])}


def test_smollm2_from_gguf_equals_transformers(smollm2_gguf: Path) -> None:
    check_model(smollm2_gguf, Golden("smollm2"), 20, 64)


def test_gemma3_from_gguf_equals_transformers(gemma3_gguf: Path) -> None:
    check_model(gemma3_gguf, Golden("gemma3"), 20, 64)


def test_smollm2_from_a_safetensors_folder_equals_transformers(smollm2_gguf: Path, scratch: Path) -> None:
    check_model(gguf_to_folder.write(smollm2_gguf, scratch), Golden("smollm2"), 8, 16)


def test_gemma3_from_a_safetensors_folder_equals_transformers(gemma3_gguf: Path, scratch: Path) -> None:
    check_model(gguf_to_folder.write(gemma3_gguf, scratch), Golden("gemma3"), 8, 16)
