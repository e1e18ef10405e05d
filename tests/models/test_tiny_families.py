"""The families of tests/tiny_families.py against transformers on tiny random weights: logits and greedy tokens."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.runner import Runner
from tests.tiny_families import VARIANTS
from tests.tiny_models import prompt, tiny_tensors, write_folder

GOLDEN = Path(__file__).parent.parent / "golden" / "models"
TOLERANCE = 1e-4
"""Largest difference of a logit, relative to the largest magnitude of the golden logits."""

DEVICES = ["reference"] + (["cpu"] if importlib.util.find_spec("octavo._native") else [])


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    variants: dict[str, Any] = json.loads((GOLDEN / "families.json").read_text())["variants"]
    return variants


@pytest.fixture(scope="module")
def logits() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "families.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", VARIANTS)
def test_tiny_family_gives_the_logits_and_greedy_tokens_of_transformers(
    name: str, device: str, facts: dict[str, Any], logits: dict[str, np.ndarray], tmp_path: Path
) -> None:
    golden, variant = facts[name], VARIANTS[name]
    folder = write_folder(tmp_path / name, variant.config, tiny_tensors(variant.config, golden["shapes"]))
    runner = Runner(folder, device, max_model_len=variant.max_model_len, max_seqs=2)
    firsts = {}
    for seq_id, entry in enumerate(golden["prompts"]):
        length = len(entry["token_ids"])
        assert entry["token_ids"] == prompt(name, length, variant.config["vocab_size"])
        runner.add(seq_id, entry["token_ids"])
        found = runner.prefill(seq_id, length, entry["rows"])
        expected = logits[f"{name}/{length}"]
        assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()
        firsts[seq_id] = int(found[-1].argmax())
    if device == "cpu":
        greedy = {seq_id: entry["greedy"] for seq_id, entry in enumerate(golden["prompts"])}
        assert runner.greedy(firsts, variant.num_greedy) == greedy
