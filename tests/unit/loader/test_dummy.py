"""Random weights from the configuration alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.checkpoints import open_checkpoint

from octavo.loader.dummy import SCALE, DummyTensors

WriteFolder = Callable[..., Path]


def dummy_folder(write_folder: WriteFolder, **config: object) -> Path:
    folder = write_folder(config)
    (folder / "model.safetensors").unlink()
    return folder


def test_dummy_needs_no_weight_file_and_gives_every_parameter(write_folder: WriteFolder) -> None:
    checkpoint = open_checkpoint(dummy_folder(write_folder), "dummy")
    values = checkpoint.tensors["model.embed_tokens.weight"].to_float32()
    assert values.shape == (48, 64) and 0.8 * SCALE < float(values.std()) < 1.2 * SCALE
    norm = checkpoint.tensors["model.norm.weight"].to_float32()
    assert norm.shape == (64,) and abs(float(norm.mean()) - 1) < SCALE


def test_a_tensor_is_a_function_of_seed_and_name(write_folder: WriteFolder) -> None:
    declared = open_checkpoint(dummy_folder(write_folder), "dummy").parameters
    name = "model.layers.0.mlp.up_proj.weight"
    first, again, other = (DummyTensors(declared, "float32", seed)[name].to_float32() for seed in (0, 0, 1))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert not np.array_equal(first, DummyTensors(declared, "float32")["model.layers.0.mlp.gate_proj.weight"].to_float32())


@pytest.mark.parametrize(("dtype", "format"), [("float32", "f32"), ("bfloat16", "bf16"), ("float16", "f16")])
def test_the_configured_dtype_is_kept(write_folder: WriteFolder, dtype: str, format: str) -> None:
    checkpoint = open_checkpoint(dummy_folder(write_folder, torch_dtype=dtype), "dummy")
    assert {tensor.format for tensor in checkpoint.tensors.values()} == {format}
    assert checkpoint.weight_bytes == sum(tensor.nbytes for tensor in checkpoint.tensors.values())


def test_norms_that_the_model_adds_1_to_lie_around_0(write_folder: WriteFolder) -> None:
    folder = dummy_folder(write_folder, architectures=["Gemma3ForCausalLM"], sliding_window=32)
    tensors = open_checkpoint(folder, "dummy").tensors
    for name in ("model.norm.weight", "model.layers.0.self_attn.q_norm.weight"):
        assert abs(float(tensors[name].to_float32().mean())) < SCALE
