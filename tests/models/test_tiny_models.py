"""Every architecture and variant against transformers on tiny random weights: logits and greedy tokens."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.models.runner import Runner
from tests.tiny_models import VARIANTS, prompt, tiny_tensors, write_folder, write_tiny_model

GOLDEN = Path(__file__).parent.parent / "golden" / "models"
TOLERANCE = 1e-4
"""Largest difference of a logit, relative to the largest magnitude of the golden logits."""

DEVICES = ["reference"] + (["cpu"] if importlib.util.find_spec("octavo._native") else [])


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    variants: dict[str, Any] = json.loads((GOLDEN / "tiny.json").read_text())["variants"]
    return variants


@pytest.fixture(scope="module")
def logits() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "tiny.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", VARIANTS)
def test_tiny_model_gives_the_logits_and_greedy_tokens_of_transformers(
    name: str, device: str, facts: dict[str, Any], logits: dict[str, np.ndarray], tmp_path: Path
) -> None:
    golden, variant = facts[name], VARIANTS[name]
    folder = write_tiny_model(tmp_path / name, name, golden["shapes"])
    runner = Runner(folder, device, max_model_len=variant.max_model_len, max_seqs=2)
    firsts = {}
    for seq_id, entry in enumerate(golden["prompts"]):
        length = len(entry["token_ids"])
        assert entry["token_ids"] == prompt(name, length)
        runner.add(seq_id, entry["token_ids"])
        found = runner.prefill(seq_id, length, entry["rows"])
        expected = logits[f"{name}/{length}"]
        assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()
        firsts[seq_id] = int(found[-1].argmax())
    if variant.num_greedy:
        assert runner.greedy(firsts, variant.num_greedy) == {
            seq_id: entry["greedy"] for seq_id, entry in enumerate(golden["prompts"])
        }


@pytest.mark.parametrize("device", DEVICES)
def test_a_short_prompt_of_longrope_is_the_same_in_a_longer_context(
    device: str, facts: dict[str, Any], logits: dict[str, np.ndarray], tmp_path: Path
) -> None:
    name = "llama-rope-longrope-short"
    golden = facts[name]
    folder = write_tiny_model(tmp_path / name, name, golden["shapes"])
    for max_model_len in (129, 200, 256):
        runner = Runner(folder, device, max_model_len=max_model_len)
        for entry in golden["prompts"]:
            length = len(entry["token_ids"])
            runner.add(0, entry["token_ids"])
            expected = logits[f"{name}/{length}"]
            assert np.abs(runner.prefill(0, length, entry["rows"]) - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("length", "kept"), [(7, "short_factor"), (32, "short_factor"), (33, "long_factor")])
def test_what_grows_beyond_the_original_context_keeps_the_factors_of_its_prompt(
    length: int, kept: str, device: str, facts: dict[str, Any], tmp_path: Path
) -> None:
    name = "llama-rope-longrope-long"
    config, shapes, token_ids = VARIANTS[name].config, facts[name]["shapes"], prompt(name, length)
    scaling = config["rope_scaling"]
    assert scaling["original_max_position_embeddings"] == 32
    one_set = {**scaling, "short_factor": scaling[kept], "long_factor": scaling[kept]}
    found: list[tuple[bytes, dict[int, list[int]]]] = []
    for given in (scaling, one_set):
        path = write_folder(tmp_path / str(len(found)), {**config, "rope_scaling": given}, tiny_tensors(config, shapes))
        runner = Runner(path, device, max_model_len=256)
        runner.add(0, token_ids)
        last = runner.prefill(0, length, [length - 1])
        found.append((last.tobytes(), runner.greedy({0: int(last.argmax())}, 64)))
    assert found[0] == found[1]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["llama-rope-llama3", "mistral-window", "gemma3"])
def test_chunked_prefill_gives_the_bytes_of_whole_prefill(
    name: str, device: str, facts: dict[str, Any], tmp_path: Path
) -> None:
    entry = facts[name]["prompts"][-1]
    folder = write_tiny_model(tmp_path / name, name, facts[name]["shapes"])
    found = []
    for chunk in (1, 7, 256):
        runner = Runner(folder, device, max_model_len=256, chunk=chunk)
        runner.add(0, entry["token_ids"])
        found.append(runner.prefill(0, len(entry["token_ids"]), entry["rows"]).tobytes())
    assert found[0] == found[1] == found[2]
