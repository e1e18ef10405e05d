"""Readers of config.json for models with a mixture of experts; defaults as in transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from octavo.config.model import ExpertsConfig, ModelConfig
from octavo.loader.fields import Fields, shown
from octavo.loader.hf_common import MAX_LAYERS, MAX_WIDTH, MAX_WINDOW, dense_config, read_qwen_window
from octavo.loader.hf_families import with_multipliers

MAX_EXPERTS = 1024
"""of a layer."""
MAX_EXPERTS_OF_ALL_LAYERS = 65536
"""A model declares each of them before a tensor is looked for, so that a damaged number could take minutes."""


def read_num_experts(fields: Fields, key: str, default: int, num_layers: int) -> int:
    """Experts of each layer. Raises: LoadError naming the key for more than octavo holds, of a layer or of all."""
    num_experts = fields.integer(key, default, low=min(default, 1), high=MAX_EXPERTS)
    if num_experts * num_layers > MAX_EXPERTS_OF_ALL_LAYERS:
        raise fields.error(
            key, f"is {num_experts} in each of {num_layers} layers; octavo holds at most {MAX_EXPERTS_OF_ALL_LAYERS} experts"
        )
    return num_experts


def _qwen2_moe(fields: Fields, generation: Fields) -> ModelConfig:
    """Qwen 1.5 and 2 with experts, and one behind a gate that every token goes to."""
    window, slides = read_qwen_window(fields)
    config = dense_config(
        fields,
        generation,
        "Qwen2MoeForCausalLM",
        window=window,
        slides=slides,
        attention_bias=fields.flag("qkv_bias", True),
        default_kv_heads=16,
    )
    experts = _experts(fields, "num_experts", 60, 4, fields.integer("moe_intermediate_size", 1408, high=MAX_WIDTH))
    shared = fields.integer("shared_expert_intermediate_size", 5632, low=0, high=MAX_WIDTH)
    experts = replace(experts, shared_inner=shared, has_shared_gate=shared > 0)
    return replace(config, experts=_with_dense_layers(fields, experts))


def _qwen3_moe(fields: Fields, generation: Fields) -> ModelConfig:
    window, slides = read_qwen_window(fields)
    bias = fields.flag("attention_bias", False)
    config = dense_config(
        fields,
        generation,
        "Qwen3MoeForCausalLM",
        window=window,
        slides=slides,
        attention_bias=bias,
        attention_out_bias=bias,
        default_kv_heads=4,
    )
    key = "num_experts" if fields.has("num_experts") else "num_local_experts"
    experts = _experts(fields, key, 128, 8, fields.integer("moe_intermediate_size", 768, high=MAX_WIDTH))
    return replace(config, experts=_with_dense_layers(fields, experts))


def _mixtral(fields: Fields, generation: Fields) -> ModelConfig:
    """Mixtral: every layer slides if there is a window."""
    window = fields.optional_integer("sliding_window", low=1, high=MAX_WINDOW)
    config = dense_config(
        fields,
        generation,
        "MixtralForCausalLM",
        window=window,
        default_kv_heads=8,
        default_eps=1e-5,
        default_theta=1_000_000.0,
    )
    experts = _experts(fields, "num_local_experts", 8, 2, config.intermediate_size, renormalise=True)
    return replace(config, experts=experts)


def _olmoe(fields: Fields, generation: Fields) -> ModelConfig:
    if fields.has("clip_qkv"):
        raise fields.error(
            "clip_qkv", f"is {shown(fields.value('clip_qkv'))}; clipped queries, keys and values are not supported"
        )
    bias = fields.flag("attention_bias", False)
    config = dense_config(
        fields, generation, "OlmoeForCausalLM", attention_bias=bias, attention_out_bias=bias, default_eps=1e-5
    )
    return replace(config, experts=_experts(fields, "num_experts", 64, 8, config.intermediate_size))


def _granite_moe(fields: Fields, generation: Fields) -> ModelConfig:
    return _granite_experts(fields, generation, "GraniteMoeForCausalLM", shared=0)


def _granite_moe_shared(fields: Fields, generation: Fields) -> ModelConfig:
    shared = fields.integer("shared_intermediate_size", 0, low=0, high=MAX_WIDTH)
    return _granite_experts(fields, generation, "GraniteMoeSharedForCausalLM", shared)


def _granite_experts(fields: Fields, generation: Fields, architecture: str, shared: int) -> ModelConfig:
    """Granite 3 with experts, whose weights are the softmax over those that are chosen."""
    bias = fields.flag("attention_bias", False)
    config = dense_config(fields, generation, architecture, attention_bias=bias, attention_out_bias=bias)
    experts = _experts(fields, "num_local_experts", 8, 2, config.intermediate_size, renormalise=True)
    return with_multipliers(replace(config, experts=replace(experts, shared_inner=shared)), fields)


def _experts(
    fields: Fields, key: str, num_experts: int, top_k: int, inner: int, *, renormalise: bool | None = None
) -> ExpertsConfig:
    """num_experts, top_k: defaults. renormalise: None, the file says it."""
    num_experts = read_num_experts(fields, key, num_experts, fields.integer("num_hidden_layers", high=MAX_LAYERS))
    top_k = fields.integer("num_experts_per_tok", top_k, high=MAX_EXPERTS)
    if top_k > num_experts:
        raise fields.error("num_experts_per_tok", f"is {top_k}, more than the {num_experts} experts that there are")
    if renormalise is None:
        renormalise = fields.flag("norm_topk_prob", False)
    return ExpertsConfig(num_experts=num_experts, top_k=top_k, inner=inner, renormalise=renormalise)


def _with_dense_layers(fields: Fields, experts: ExpertsConfig) -> ExpertsConfig:
    """Qwen: every decoder_sparse_step-th layer has experts, but those of mlp_only_layers."""
    num_layers = fields.integer("num_hidden_layers", high=MAX_LAYERS)
    step = fields.integer("decoder_sparse_step", 1, high=MAX_LAYERS)
    listed = fields.values.get("mlp_only_layers") or []
    if not isinstance(listed, list) or any(not isinstance(layer, int) for layer in listed):
        raise fields.error("mlp_only_layers", f"is {shown(listed)}, expected a list of layers")
    dense = (layer for layer in range(num_layers) if layer in listed or (layer + 1) % step != 0)
    return replace(experts, dense_layers=tuple(dense))


EXPERT_READERS: dict[str, Callable[[Fields, Fields], ModelConfig]] = {
    "Qwen2MoeForCausalLM": _qwen2_moe,
    "Qwen3MoeForCausalLM": _qwen3_moe,
    "MixtralForCausalLM": _mixtral,
    "OlmoeForCausalLM": _olmoe,
    "GraniteMoeForCausalLM": _granite_moe,
    "GraniteMoeSharedForCausalLM": _granite_moe_shared,
}
