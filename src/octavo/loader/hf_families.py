"""Readers of config.json for families that are a Llama with other norms, ropes or multipliers; defaults as in transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from octavo.config.model import ModelConfig
from octavo.loader.fields import Fields, shown
from octavo.loader.hf_common import (
    MAX_LAYERS,
    MAX_MULTIPLIER,
    MAX_WIDTH,
    MAX_WINDOW,
    MIN_MULTIPLIER,
    dense_config,
    gemma_embedding_scale,
    read_activation,
    read_window,
    text_part,
)
from octavo.loader.rope_config import ropes_by_layer_kind


def _phi3(fields: Fields, generation: Fields) -> ModelConfig:
    """Phi-3, 3.5 and Phi-4, mini and large: all layers slide if there is a window."""
    values = {"original_max_position_embeddings": 4096, **fields.values}
    for key in ("rope_scaling", "rope_parameters"):
        section = values.get(key)
        if isinstance(section, dict) and section.get("rope_type", section.get("type")) == "yarn":
            values[key] = {**section, "rope_type": "longrope"}  # the first files of Phi-3 had this name for it
    fields = Fields(values, fields.source, quiet=fields.quiet)
    window = fields.optional_integer("sliding_window", low=1, high=MAX_WINDOW)
    return dense_config(fields, generation, "Phi3ForCausalLM", window=window, default_eps=1e-5)


def _smollm3(fields: Fields, generation: Fields) -> ModelConfig:
    """SmolLM3: every fourth layer is not rotated; those are the ones that slide, if any do."""
    num_layers = fields.integer("num_hidden_layers", high=MAX_LAYERS)
    if fields.has("no_rope_layers"):
        flags = fields.value("no_rope_layers")
        if not isinstance(flags, list) or len(flags) < num_layers or any(flag not in (0, 1) for flag in flags):
            raise fields.error("no_rope_layers", f"is {shown(flags)}, expected {num_layers} times 0 or 1")
        rotated = tuple(bool(flag) for flag in flags[:num_layers])
    else:
        interval = fields.integer("no_rope_layer_interval", 4)
        rotated = tuple((layer + 1) % interval != 0 for layer in range(num_layers))
    uses_window = fields.flag("use_sliding_window", False)
    bias = fields.flag("attention_bias", False)
    config = dense_config(
        fields,
        generation,
        "SmolLM3ForCausalLM",
        window=fields.optional_integer("sliding_window", low=1, high=MAX_WINDOW) if uses_window else None,
        slides=lambda layer: not rotated[layer],
        attention_bias=bias,
        attention_out_bias=bias,
        mlp_bias=fields.flag("mlp_bias", False),
        default_kv_heads=4,
        default_theta=2_000_000.0,
        default_tied=True,
    )
    return replace(config, rotated=rotated)


def _olmo2(fields: Fields, generation: Fields) -> ModelConfig:
    bias = fields.flag("attention_bias", False)
    return dense_config(fields, generation, "Olmo2ForCausalLM", attention_bias=bias, attention_out_bias=bias, default_eps=1e-5)


def _olmo3(fields: Fields, generation: Fields) -> ModelConfig:
    """OLMo 3: three of four layers slide, with a rope that is never scaled."""
    bias = fields.flag("attention_bias", False)
    config = dense_config(
        fields,
        generation,
        "Olmo3ForCausalLM",
        window=fields.integer("sliding_window", 4096, high=MAX_WINDOW),
        slides=lambda layer: (layer + 1) % 4 != 0,
        attention_bias=bias,
        attention_out_bias=bias,
        default_eps=1e-5,
    )
    rope, local_rope = ropes_by_layer_kind(
        fields, config.head_dim, fields.integer("max_position_embeddings"), 500_000.0, 500_000.0
    )
    return replace(config, rope=rope, local_rope=local_rope)


def _granite(fields: Fields, generation: Fields) -> ModelConfig:
    """Granite 3: multipliers of embeddings, attention scores and sublayers, a divisor of logits."""
    bias = fields.flag("attention_bias", False)
    config = dense_config(
        fields,
        generation,
        "GraniteForCausalLM",
        attention_bias=bias,
        attention_out_bias=bias,
        mlp_bias=fields.flag("mlp_bias", False),
    )
    return with_multipliers(config, fields)


def _granite4(fields: Fields, generation: Fields) -> ModelConfig:
    """Granite 4 without experts and state-space layers (350M, 1B, Micro); its MLP is what the others share beside experts."""
    if fields.integer("num_local_experts", 8, low=0):
        raise fields.error("num_local_experts", "is not 0; mixtures of experts are not supported")
    kinds = fields.value("layer_types")
    if not isinstance(kinds, list) or any(kind not in ("attention", "full_attention") for kind in kinds):
        raise fields.error("layer_types", f"is {shown(kinds)}; only models of which all layers are attention are supported")
    inner = fields.integer("shared_intermediate_size", 1024, high=MAX_WIDTH)
    values = {**fields.values, "layer_types": ["full_attention"] * len(kinds), "intermediate_size": inner}
    fields = Fields(values, fields.source, quiet=fields.quiet)
    bias = fields.flag("attention_bias", False)
    config = dense_config(fields, generation, "GraniteMoeHybridForCausalLM", attention_bias=bias, attention_out_bias=bias)
    is_rotated = fields.text("position_embedding_type", "none") == "rope"
    return replace(with_multipliers(config, fields), rotated=(is_rotated,) * config.num_layers)


def with_multipliers(config: ModelConfig, fields: Fields) -> ModelConfig:
    """config with Granite's multipliers."""

    def multiplier(key: str) -> float:
        return fields.number(key, 1.0, low=MIN_MULTIPLIER, high=MAX_MULTIPLIER)

    return replace(
        config,
        embedding_scale=multiplier("embedding_multiplier"),
        query_scale=multiplier("attention_multiplier"),
        residual_multiplier=multiplier("residual_multiplier"),
        logits_scaling=multiplier("logits_scaling"),
    )


def _gemma2(fields: Fields, generation: Fields) -> ModelConfig:
    """Gemma 2: every other layer slides; scores and logits are capped."""
    if fields.flag("use_bidirectional_attention", False):
        raise fields.error("use_bidirectional_attention", "is true; octavo generates text with causal attention only")
    bias = fields.flag("attention_bias", False)
    config = dense_config(
        fields,
        generation,
        "Gemma2ForCausalLM",
        window=fields.integer("sliding_window", 4096, high=MAX_WINDOW),
        slides=lambda layer: layer % 2 == 0,
        attention_bias=bias,
        attention_out_bias=bias,
        default_head_dim=256,
        default_kv_heads=4,
        default_tied=True,
    )

    def softcap(key: str, default: float) -> float | None:
        return fields.optional_number(key, low_open=True) if key in fields.values else default

    return replace(
        config,
        hidden_act=read_activation(fields, "hidden_activation", "gelu_pytorch_tanh"),
        query_scale=fields.number("query_pre_attn_scalar", 256.0, low_open=True) ** -0.5,
        attn_softcap=softcap("attn_logit_softcapping", 50.0),
        final_softcap=softcap("final_logit_softcapping", 30.0),
        embedding_scale=gemma_embedding_scale(config.hidden_size),
    )


def _glm4(fields: Fields, generation: Fields) -> ModelConfig:
    return _glm(fields, generation, "Glm4ForCausalLM")


def _glm_9b(fields: Fields, generation: Fields) -> ModelConfig:
    return _glm(fields, generation, "GlmForCausalLM")


def _glm(fields: Fields, generation: Fields, architecture: str) -> ModelConfig:
    """GLM-4, dense: half of each head is rotated, unless the file says how much."""
    fields = Fields({"partial_rotary_factor": 0.5, **fields.values}, fields.source, quiet=fields.quiet)
    return dense_config(
        fields,
        generation,
        architecture,
        attention_bias=fields.flag("attention_bias", True),
        default_head_dim=128,
        default_kv_heads=2,
        default_eps=1.5625e-7,
    )


_MINISTRAL3_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 1_000_000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}


def _ministral3(fields: Fields, generation: Fields) -> ModelConfig:
    """Ministral 3: queries grow with the position, in steps of the context before scaling."""
    if not fields.has("rope_parameters"):
        fields = Fields({**fields.values, "rope_parameters": _MINISTRAL3_ROPE}, fields.source, quiet=fields.quiet)
    config = dense_config(
        fields,
        generation,
        "Ministral3ForCausalLM",
        window=fields.optional_integer("sliding_window", low=1, high=MAX_WINDOW),
        default_head_dim=128,
        default_kv_heads=8,
        default_eps=1e-5,
    )
    rope = fields.section("rope_parameters")
    assert rope is not None
    beta = rope.number("llama_4_scaling_beta", 0.0, high=1e3)
    if not beta:
        return config
    if config.rope.rotary_dim != config.head_dim or config.rope.original_max_position is None:
        raise rope.error("llama_4_scaling_beta", "needs a rope of whole heads with original_max_position_embeddings")
    return replace(config, query_rope=replace(config.rope, temperature=beta))


def _mistral3_text_part(fields: Fields, generation: Fields) -> ModelConfig:
    """Mistral Small 3.1 and 3.2 and Ministral 3, text only."""
    inner = text_part(fields)
    kind = inner.text("model_type", "mistral")
    if kind not in ("mistral", "ministral3"):
        raise inner.error("model_type", f"is {shown(kind)}; known: mistral, ministral3")
    if fields.has("tie_word_embeddings") and not inner.has("tie_word_embeddings"):
        values = {**inner.values, "tie_word_embeddings": fields.value("tie_word_embeddings")}
        inner = Fields(values, inner.source, quiet=inner.quiet)
    if kind == "ministral3":
        return _ministral3(inner, generation)
    window = inner.optional_integer("sliding_window", low=1, high=MAX_WINDOW)
    return dense_config(
        inner,
        generation,
        "MistralForCausalLM",
        window=window,
        default_head_dim=128,
        default_kv_heads=8,
        default_eps=1e-5,
        default_theta=1e9,
    )


def _exaone4(fields: Fields, generation: Fields) -> ModelConfig:
    """EXAONE 4: with a window, three of four layers slide, and the others are not rotated."""
    window = read_window(fields)
    pattern = fields.values.get("sliding_window_pattern")
    letters = pattern if isinstance(pattern, str) and pattern else ""
    interval = 4 if letters or window is None else fields.integer("sliding_window_pattern", 4)
    config = dense_config(
        fields,
        generation,
        "Exaone4ForCausalLM",
        window=window,
        slides=lambda layer: letters[layer % len(letters)] == "L" if letters else (layer + 1) % interval != 0,
        default_kv_heads=32,
        default_eps=1e-5,
    )
    return replace(config, rotated=() if window is None else tuple(kind == "sliding" for kind in config.layer_kinds))


def _seed_oss(fields: Fields, generation: Fields) -> ModelConfig:
    """Seed-OSS: a Llama with biases on q, k and v."""
    return dense_config(
        fields,
        generation,
        "SeedOssForCausalLM",
        attention_bias=fields.flag("attention_bias", True),
        attention_out_bias=fields.flag("attention_out_bias", False),
        mlp_bias=fields.flag("mlp_bias", False),
        default_head_dim=128,
        default_kv_heads=8,
    )


FAMILY_READERS: dict[str, Callable[[Fields, Fields], ModelConfig]] = {
    "Phi3ForCausalLM": _phi3,
    "SmolLM3ForCausalLM": _smollm3,
    "Olmo2ForCausalLM": _olmo2,
    "Olmo3ForCausalLM": _olmo3,
    "GraniteForCausalLM": _granite,
    "GraniteMoeHybridForCausalLM": _granite4,
    "Gemma2ForCausalLM": _gemma2,
    "Glm4ForCausalLM": _glm4,
    "GlmForCausalLM": _glm_9b,
    "Ministral3ForCausalLM": _ministral3,
    "Mistral3ForConditionalGeneration": _mistral3_text_part,
    "Exaone4ForCausalLM": _exaone4,
    "SeedOssForCausalLM": _seed_oss,
}
