"""The families of tests/tiny_families.py against transformers on tiny random weights: logits and greedy tokens."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tests import gguf_from_folder
from tests.checkpoints import open_checkpoint
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


IN_GGUF = {
    *("phi3", "phi3-window", "phi4-longrope-short", "phi4-longrope-long", "smollm3", "olmo2", "olmo3", "granite"),
    *("granite-tied-bias", "granite4", "gemma2", "glm4", "ministral3", "exaone4", "exaone4-llama3", "exaone4-full"),
    *("seed-oss", "seed-oss-biases", "qwen2-yarn"),
}
"""Variants that llama.cpp's files can express: one of each architecture at least."""


@pytest.mark.parametrize("name", sorted(IN_GGUF))
def test_gguf_file_gives_the_logits_of_the_folder(
    name: str, facts: dict[str, Any], logits: dict[str, np.ndarray], tmp_path: Path
) -> None:
    golden, variant = facts[name], VARIANTS[name]
    path = gguf_from_folder.write(tmp_path / "tiny.gguf", variant.config, tiny_tensors(variant.config, golden["shapes"]))
    runner = Runner(path, DEVICES[-1], max_model_len=variant.max_model_len)
    for entry in golden["prompts"]:
        length = len(entry["token_ids"])
        runner.add(0, entry["token_ids"])
        expected = logits[f"{name}/{length}"]
        assert np.abs(runner.prefill(0, length, entry["rows"]) - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("name", ["phi4-longrope-long", "glm4"])
def test_fused_tensors_of_blocks_are_split_without_loss(name: str, facts: dict[str, Any], tmp_path: Path) -> None:
    tensors = tiny_tensors(VARIANTS[name].config, facts[name]["shapes"])
    path = gguf_from_folder.write(tmp_path / "tiny.gguf", VARIANTS[name].config, tensors, "Q8_0")
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    found = open_checkpoint(path).tensors
    for layer in range(2):
        whole = gguf.dequantize(stored[f"blk.{layer}.ffn_up.weight"].data, gguf.GGMLQuantizationType.Q8_0)
        parts = [found[f"model.layers.{layer}.mlp.{part}_proj.weight"] for part in ("gate", "up")]
        assert {part.format for part in parts} == {"q8_0"}
        assert np.array_equal(np.concatenate([part.to_float32() for part in parts]), whole)
        assert sum(part.nbytes for part in parts) == stored[f"blk.{layer}.ffn_up.weight"].data.nbytes


@pytest.mark.parametrize("name", ["phi3-window", "glm4", "granite", "exaone4"])
def test_quantised_weights_stay_near_the_floats(
    name: str, facts: dict[str, Any], logits: dict[str, np.ndarray], tmp_path: Path
) -> None:
    golden, variant = facts[name], VARIANTS[name]
    tensors = tiny_tensors(variant.config, golden["shapes"])
    path = gguf_from_folder.write(tmp_path / "tiny.gguf", variant.config, tensors, "Q8_0")
    runner = Runner(path, DEVICES[-1], max_model_len=variant.max_model_len, dtype="auto")
    entry = golden["prompts"][-1]
    length = len(entry["token_ids"])
    runner.add(0, entry["token_ids"])
    expected = logits[f"{name}/{length}"]
    assert np.abs(runner.prefill(0, length, entry["rows"]) - expected).max() <= 0.1 * np.abs(expected).max()


@pytest.mark.parametrize("prefix", ["language_model.", "model.language_model."])
def test_the_text_part_of_a_model_that_sees_images_is_read(
    prefix: str, facts: dict[str, Any], logits: dict[str, np.ndarray], tmp_path: Path
) -> None:
    golden, config = facts["ministral3"], VARIANTS["ministral3"].config
    outer = {"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "text_config": config}
    tensors = {
        prefix + (name.removeprefix("model.") if prefix.startswith("model.") else name): values
        for name, values in tiny_tensors(config, golden["shapes"]).items()
    }
    runner = Runner(write_folder(tmp_path / "model", outer, tensors), DEVICES[-1], max_model_len=256)
    entry = golden["prompts"][-1]
    runner.add(0, entry["token_ids"])
    found, expected = runner.prefill(0, 45, entry["rows"]), logits["ministral3/45"]
    assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["phi4-longrope-long", "smollm3-sliding", "gemma2", "ministral3", "exaone4"])
def test_chunked_prefill_of_a_family_gives_the_bytes_of_whole_prefill(
    name: str, device: str, facts: dict[str, Any], tmp_path: Path
) -> None:
    golden, config = facts[name], VARIANTS[name].config
    entry = golden["prompts"][-1]
    folder = write_folder(tmp_path / name, config, tiny_tensors(config, golden["shapes"]))
    found = []
    for chunk in (7, 256):
        runner = Runner(folder, device, max_model_len=256, chunk=chunk)
        runner.add(0, entry["token_ids"])
        found.append(runner.prefill(0, len(entry["token_ids"]), entry["rows"]).tobytes())
    assert found[0] == found[1]
