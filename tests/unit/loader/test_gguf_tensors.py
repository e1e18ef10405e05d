"""GGUF tensors as parameters, with Hugging Face's meaning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.checkpoints import open_checkpoint, parameter_shapes

from octavo.errors import LoadError

WriteGguf = Callable[..., Path]
F32 = gguf.GGMLQuantizationType.F32


def permute(weights: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """What llama.cpp's converter does to q and k of Llama models."""
    pairs = weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
    permuted: NDArray[np.float32] = pairs.swapaxes(1, 2).reshape(weights.shape)
    return permuted


def test_q_and_k_rows_of_llama_come_back_in_hugging_face_order(write_gguf: WriteGguf) -> None:
    rng = np.random.default_rng(2)
    q, k = (rng.standard_normal((rows, 64)).astype(np.float32) for rows in (64, 32))
    arrays = {"blk.1.attn_q.weight": permute(q, 4), "blk.1.attn_k.weight": permute(k, 2)}
    tensors = open_checkpoint(write_gguf(arrays=arrays, quantised=F32)).tensors
    assert np.array_equal(tensors["model.layers.1.self_attn.q_proj.weight"].to_float32(), q)
    assert np.array_equal(tensors["model.layers.1.self_attn.k_proj.weight"].to_float32(), k)


def test_qwen_rows_stay_in_place(write_gguf: WriteGguf) -> None:
    q = np.random.default_rng(2).standard_normal((64, 64)).astype(np.float32)
    tensors = open_checkpoint(write_gguf("qwen3", arrays={"blk.0.attn_q.weight": q}, quantised=F32)).tensors
    assert np.array_equal(tensors["model.layers.0.self_attn.q_proj.weight"].to_float32(), q)


def test_gemma_norms_lose_the_one_that_the_converter_added(write_gguf: WriteGguf) -> None:
    weight = np.linspace(-0.4, 0.9, 64, dtype=np.float32)
    arrays = {"output_norm.weight": weight + np.float32(1), "blk.0.ffn_norm.weight": weight + np.float32(1)}
    tensors = open_checkpoint(write_gguf("gemma3", arrays=arrays)).tensors
    for name in ("model.norm.weight", "model.layers.0.pre_feedforward_layernorm.weight"):
        assert np.array_equal(tensors[name].to_float32() + np.float32(1), weight + np.float32(1))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma3"])
def test_every_parameter_is_found_in_its_shape(write_gguf: WriteGguf, architecture: str) -> None:
    checkpoint = open_checkpoint(write_gguf(architecture))
    assert {name: tensor.shape for name, tensor in checkpoint.tensors.items()} == parameter_shapes(checkpoint.config)


def test_a_missing_tensor_is_named(write_gguf: WriteGguf) -> None:
    with pytest.raises(LoadError, match=r"tiny\.gguf: tensor blk\.1\.ffn_up\.weight is missing"):
        open_checkpoint(write_gguf(arrays={"blk.1.ffn_up.weight": None}))


def test_a_mis_shaped_tensor_is_named(write_gguf: WriteGguf) -> None:
    with pytest.raises(LoadError, match=r"tiny\.gguf: blk\.0\.ffn_up\.weight: has shape \[95, 64\], but .* \[96, 64\]"):
        open_checkpoint(write_gguf(arrays={"blk.0.ffn_up.weight": np.zeros((95, 64), dtype=np.float32)}))
    with pytest.raises(LoadError, match=r"blk\.0\.attn_q\.weight: has shape \[32, 64\], but .*q_proj.weight \[64, 64\]"):
        open_checkpoint(write_gguf(arrays={"blk.0.attn_q.weight": np.zeros((32, 64), dtype=np.float32)}))


def test_unknown_tensors_are_left_out(write_gguf: WriteGguf) -> None:
    extra = {
        name: np.zeros(32, dtype=np.float32)
        for name in ("blk.0.mystery.weight", "blk.x.attn_q.weight", "blk.9.ffn_norm.weight")
    }
    checkpoint = open_checkpoint(write_gguf(arrays=extra))
    assert checkpoint.tensors.keys() == parameter_shapes(checkpoint.config).keys()
