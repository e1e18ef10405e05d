"""Tiny random models with a mixture of experts, and their tensors under the names that the published folders have.

As tiny_models.py: numpy only, no octavo. transformers holds all experts of a layer in one array and splits it when it saves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tests.tiny_families import _BASE, _GRANITE
from tests.tiny_models import F32, Config, Variant


def _config(architecture: str, model_type: str, **changes: Any) -> Config:
    return {**_BASE, "architectures": [architecture], "model_type": model_type, "rope_theta": 10000.0, **changes}


def _qwen2(**changes: Any) -> Config:
    sizes = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 40}
    return _config("Qwen2MoeForCausalLM", "qwen2_moe", **{**sizes, **changes})


def _qwen3(**changes: Any) -> Config:
    sizes = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 24, "norm_topk_prob": True}
    return _config("Qwen3MoeForCausalLM", "qwen3_moe", **{**sizes, **changes})


def _granite(architecture: str, model_type: str, **changes: Any) -> Config:
    return _config(architecture, model_type, **{**_GRANITE, "num_local_experts": 5, "num_experts_per_tok": 2, **changes})


VARIANTS: dict[str, Variant] = {
    "qwen3-moe": Variant(_qwen3()),
    "qwen3-moe-plain-weights": Variant(_qwen3(norm_topk_prob=False, attention_bias=True, num_experts_per_tok=8)),
    "qwen3-moe-dense-layers": Variant(_qwen3(num_hidden_layers=4, decoder_sparse_step=2, mlp_only_layers=[1])),
    "qwen2-moe": Variant(_qwen2()),
    "qwen2-moe-renormalised": Variant(_qwen2(norm_topk_prob=True, qkv_bias=False, num_experts_per_tok=1)),
    "mixtral": Variant(_config("MixtralForCausalLM", "mixtral", num_local_experts=4, num_experts_per_tok=2)),
    "mixtral-window": Variant(
        _config("MixtralForCausalLM", "mixtral", num_local_experts=3, num_experts_per_tok=2, sliding_window=8)
    ),
    "olmoe": Variant(_config("OlmoeForCausalLM", "olmoe", num_experts=20, num_experts_per_tok=4)),
    "olmoe-renormalised": Variant(
        _config("OlmoeForCausalLM", "olmoe", num_experts=6, num_experts_per_tok=2, norm_topk_prob=True, num_key_value_heads=4)
    ),
    "granite-moe": Variant(_granite("GraniteMoeForCausalLM", "granitemoe", tie_word_embeddings=True)),
    "granite-moe-shared": Variant(
        _granite("GraniteMoeSharedForCausalLM", "granitemoeshared", shared_intermediate_size=40, num_experts_per_tok=5)
    ),
}


def published(config: Config, tensors: Mapping[str, F32]) -> dict[str, F32]:
    """Tensors as a folder holds them."""
    found: dict[str, F32] = {}
    for name, values in tensors.items():
        stem, _, end = name.partition(".experts.")
        if not end:
            found[_renamed(config, name)] = values
        elif config["model_type"].startswith("granitemoe"):
            kind = "input_linear" if end == "gate_up_proj" else "output_linear"
            found[f"{stem}.{kind}.weight"] = values
        else:
            for expert, matrix in enumerate(values):
                found |= _one_expert(config, stem, expert, end, matrix)
    return found


def _one_expert(config: Config, stem: str, expert: int, kind: str, matrix: F32) -> dict[str, F32]:
    names = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
    if config["model_type"] == "mixtral":
        stem, names = stem.replace(".mlp", ".block_sparse_moe"), {"gate": "w1", "up": "w3", "down": "w2"}
    parts = {"down": matrix}
    if kind == "gate_up_proj":
        gate, up = np.split(matrix, 2)
        parts = {"gate": gate, "up": up}
    return {f"{stem}.experts.{expert}.{names[part]}.weight": values for part, values in parts.items()}


def _renamed(config: Config, name: str) -> str:
    if config["model_type"] == "mixtral":
        return name.replace(".mlp.gate.", ".block_sparse_moe.gate.")
    if config["model_type"].startswith("granitemoe"):
        return name.replace(".router.weight", ".router.layer.weight")
    return name
