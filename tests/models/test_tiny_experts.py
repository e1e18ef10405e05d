"""The mixtures of experts of tests/tiny_experts.py against transformers on tiny random weights: logits and greedy tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import gguf_from_folder
from tests.models.runner import Runner
from tests.models.test_tiny_families import DEVICES, GOLDEN, TOLERANCE
from tests.tiny_experts import VARIANTS, published
from tests.tiny_models import F32, prompt, tiny_tensors, write_folder

from octavo.errors import LoadError


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    variants: dict[str, Any] = json.loads((GOLDEN / "experts.json").read_text())["variants"]
    return variants


@pytest.fixture(scope="module")
def logits() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "experts.npz") as arrays:
        return dict(arrays)


def tensors_of(name: str, facts: dict[str, Any]) -> dict[str, F32]:
    config = VARIANTS[name].config
    return published(config, tiny_tensors(config, facts[name]["shapes"]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", VARIANTS)
def test_experts_give_the_logits_and_greedy_tokens_of_transformers(
    name: str, device: str, facts: dict[str, Any], logits: dict[str, np.ndarray], tmp_path: Path
) -> None:
    golden, variant = facts[name], VARIANTS[name]
    folder = write_folder(tmp_path / name, variant.config, tensors_of(name, facts))
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


IN_GGUF = {"qwen3-moe", "qwen2-moe", "mixtral", "olmoe", "granite-moe", "granite-moe-shared"}
"""Variants that llama.cpp's files can express: one of each architecture at least."""


@pytest.mark.parametrize("name", sorted(IN_GGUF))
def test_gguf_file_with_stacks_of_experts_gives_the_logits_of_the_folder(
    name: str, facts: dict[str, Any], logits: dict[str, np.ndarray], tmp_path: Path
) -> None:
    path = gguf_from_folder.write(tmp_path / "tiny.gguf", VARIANTS[name].config, tensors_of(name, facts))
    runner = Runner(path, DEVICES[-1], max_model_len=VARIANTS[name].max_model_len)
    for entry in facts[name]["prompts"]:
        length = len(entry["token_ids"])
        runner.add(0, entry["token_ids"])
        expected = logits[f"{name}/{length}"]
        assert np.abs(runner.prefill(0, length, entry["rows"]) - expected).max() <= TOLERANCE * np.abs(expected).max()


OLDER_KEYS = {
    "qwen2-moe": ("moe_intermediate_size", "shared_expert_intermediate_size"),
    "qwen3-moe": ("moe_intermediate_size",),
    "granite-moe-shared": ("shared_intermediate_size",),
}
"""Sizes that older files have no keys for."""


@pytest.mark.parametrize("name", OLDER_KEYS)
def test_the_tensors_of_a_gguf_file_tell_sizes_that_have_no_key(
    name: str, facts: dict[str, Any], logits: dict[str, np.ndarray], tmp_path: Path
) -> None:
    config = {key: value for key, value in VARIANTS[name].config.items() if key not in OLDER_KEYS[name]}
    path = gguf_from_folder.write(tmp_path / "older.gguf", config, tensors_of(name, facts))
    runner = Runner(path, DEVICES[-1], max_model_len=VARIANTS[name].max_model_len)
    entry = facts[name]["prompts"][0]
    length = len(entry["token_ids"])
    runner.add(0, entry["token_ids"])
    expected = logits[f"{name}/{length}"]
    assert np.abs(runner.prefill(0, length, entry["rows"]) - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_experts_per_tok": 9}, "num_experts_per_tok.*is 9, more than the 8 experts"),
        ({"num_experts_per_tok": 0}, "num_experts_per_tok"),
        ({"num_experts": -1}, "num_experts"),
        ({"num_experts": 5000}, "num_experts"),
        ({"num_experts": 1024, "num_hidden_layers": 500}, "num_experts.*is 1024 in each of 500 layers.*at most 65536 experts"),
        ({"num_experts": 9}, "has shape|is missing"),
        ({"moe_intermediate_size": 31}, "has shape"),
        ({"mlp_only_layers": "all"}, "mlp_only_layers"),
        ({"decoder_sparse_step": 0}, "decoder_sparse_step"),
    ],
)
def test_broken_configurations_are_refused_by_name(
    changes: dict[str, Any], words: str, facts: dict[str, Any], tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "broken", {**VARIANTS["qwen3-moe"].config, **changes}, tensors_of("qwen3-moe", facts))
    with pytest.raises(LoadError, match=words):
        Runner(folder, DEVICES[-1], max_model_len=64)
