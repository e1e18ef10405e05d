"""Tiny random models: every architecture and variant the golden files hold, their weights, and folders to load them from.

Shared by the tests and by golden/models/make_golden.py, which runs where transformers is installed; so numpy only, no octavo.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Config = dict[str, Any]

VOCAB = 256
_BASE: Config = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}


@dataclass(frozen=True)
class Variant:
    """One tiny model.

    config          config.json
    prompts         lengths of the prompts in the golden file
    max_model_len   what the rope table is made for
    num_greedy      greedy tokens in the golden file; 0 where transformers' own frequencies would change on the way
    """

    config: Config
    prompts: tuple[int, ...] = (7, 45)
    max_model_len: int = 256
    num_greedy: int = 64


def _config(architecture: str, model_type: str, **changes: Any) -> Config:
    return {**_BASE, "architectures": [architecture], "model_type": model_type, **changes}


def _llama(**changes: Any) -> Config:
    return _config("LlamaForCausalLM", "llama", **{"rope_theta": 10000.0, **changes})


def _llama_rope(theta: float = 10000.0, **scaling: Any) -> Config:
    return _llama(rope_theta=theta, rope_scaling=scaling)


def _gemma3(**changes: Any) -> Config:
    defaults = {
        "num_hidden_layers": 4,
        "head_dim": 32,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 24,
        "sliding_window": 8,
        "sliding_window_pattern": 3,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-6,
    }
    return _config("Gemma3ForCausalLM", "gemma3_text", **{**defaults, **changes})


_SHORT = [1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5]
_LONG = [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 8.0]
_LONGROPE: Config = {"rope_type": "longrope", "short_factor": _SHORT, "long_factor": _LONG, "factor": 2.0}

VARIANTS: dict[str, Variant] = {
    "llama-mha": Variant(_llama(num_key_value_heads=4)),
    "llama-gqa": Variant(_llama()),
    "llama-mqa-head-dim": Variant(_llama(num_key_value_heads=1, head_dim=24)),
    "llama-tied": Variant(_llama(tie_word_embeddings=True)),
    "llama-attention-bias": Variant(_llama(attention_bias=True)),
    "llama-mlp-bias": Variant(_llama(mlp_bias=True)),
    "llama-rope-linear": Variant(_llama_rope(rope_type="linear", factor=4.0)),
    "llama-rope-dynamic": Variant(_llama_rope(rope_type="dynamic", factor=4.0)),
    "llama-rope-dynamic-stretched": Variant(
        {**_llama_rope(rope_type="dynamic", factor=4.0), "max_position_embeddings": 32},
        prompts=(100,),
        max_model_len=100,
        num_greedy=0,
    ),
    "llama-rope-llama3": Variant(
        _llama_rope(
            500000.0,
            rope_type="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=64,
        )
    ),
    "llama-rope-yarn": Variant(_llama_rope(rope_type="yarn", factor=8.0, original_max_position_embeddings=32)),
    "llama-rope-yarn-mscale": Variant(
        _llama_rope(
            rope_type="yarn",
            factor=8.0,
            original_max_position_embeddings=32,
            mscale=1.2,
            mscale_all_dim=0.8,
            truncate=False,
            beta_fast=24.0,
            beta_slow=2.0,
        )
    ),
    "llama-rope-longrope-short": Variant(_llama_rope(**_LONGROPE, original_max_position_embeddings=128), max_model_len=128),
    "llama-rope-longrope-long": Variant(_llama_rope(**_LONGROPE, original_max_position_embeddings=32), prompts=(40, 60)),
    "mistral": Variant(_config("MistralForCausalLM", "mistral", sliding_window=None, rope_theta=10000.0)),
    "mistral-window": Variant(_config("MistralForCausalLM", "mistral", sliding_window=8, rope_theta=10000.0, head_dim=16)),
    "qwen2": Variant(_config("Qwen2ForCausalLM", "qwen2", rope_theta=1000000.0)),
    "qwen2-tied": Variant(_config("Qwen2ForCausalLM", "qwen2", rope_theta=1000000.0, tie_word_embeddings=True)),
    "qwen2-sliding": Variant(
        _config(
            "Qwen2ForCausalLM", "qwen2", rope_theta=1000000.0, use_sliding_window=True, sliding_window=8, max_window_layers=1
        )
    ),
    "qwen3": Variant(_config("Qwen3ForCausalLM", "qwen3", head_dim=24, rope_theta=1000000.0)),
    "qwen3-tied": Variant(_config("Qwen3ForCausalLM", "qwen3", head_dim=16, rope_theta=1000000.0, tie_word_embeddings=True)),
    "gemma3": Variant(_gemma3()),
    "gemma3-rope-linear": Variant(_gemma3(rope_scaling={"rope_type": "linear", "factor": 8.0})),
    "gemma3-softcap": Variant(_gemma3(final_logit_softcapping=3.0, attn_logit_softcapping=2.0)),
}


def prompt(name: str, length: int, vocab_size: int = VOCAB) -> list[int]:
    """The golden prompt of a variant: token ids from a generator keyed by variant and length."""
    return [int(token) for token in _generator(f"prompt:{name}:{length}").integers(3, vocab_size, length)]


def weight(name: str, shape: tuple[int, ...], architecture: str) -> F32:
    """A parameter, float32, as a function of its Hugging Face name and shape: sizes that keep activations near 1."""
    values: F32 = _generator(f"{name}:{shape}").standard_normal(shape).astype(np.float32)
    if name.endswith("norm.weight"):
        values = values * np.float32(0.1) + np.float32(0 if architecture.startswith("Gemma") else 1)
    elif len(shape) == 1:
        values *= np.float32(0.2)
    else:
        values *= np.float32(shape[1] ** -0.5)
    return values


def write_folder(folder: Path, config: Config, tensors: Mapping[str, F32]) -> Path:
    """A Hugging Face model folder (config.json, model.safetensors) of float32 tensors; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    header: dict[str, Any] = {}
    offset = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + tensor.nbytes]}
        offset += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor, np.float32).tobytes())
    return folder


def write_tiny_model(folder: Path, name: str, shapes: Mapping[str, tuple[int, ...]]) -> Path:
    """The folder of one variant; shapes are those of its parameters, from the golden file."""
    config = VARIANTS[name].config
    return write_folder(folder, config, tiny_tensors(config, shapes))


def tiny_tensors(config: Config, shapes: Mapping[str, Sequence[int]]) -> dict[str, F32]:
    """The parameters of a tiny model by their Hugging Face names."""
    return {key: weight(key, tuple(shape), config["architectures"][0]) for key, shape in shapes.items()}


def _generator(key: str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little")))
