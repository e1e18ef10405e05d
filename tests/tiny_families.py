"""Tiny random models of the families that are a Llama with other norms, ropes or multipliers, with every variant that their
configurations allow. As tiny_models.py: numpy only, no octavo.
"""

from __future__ import annotations

from typing import Any

from tests.tiny_models import Config, Variant

_BASE: Config = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}
_YARN: Config = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32}
_LONGROPE: Config = {
    "type": "longrope",
    "short_factor": [1.0, 1.1, 1.2, 1.4, 1.7, 2.0],
    "long_factor": [1.0, 1.5, 2.5, 4.0, 6.0, 8.0],
}
_GRANITE: Config = {
    "embedding_multiplier": 12.0,
    "attention_multiplier": 0.08,
    "residual_multiplier": 0.22,
    "logits_scaling": 8.0,
}


def _config(architecture: str, model_type: str, **changes: Any) -> Config:
    return {**_BASE, "architectures": [architecture], "model_type": model_type, **changes}


def _phi3(**changes: Any) -> Config:
    return _config("Phi3ForCausalLM", "phi3", **{"rope_theta": 10000.0, "original_max_position_embeddings": 128, **changes})


def _phi4(**changes: Any) -> Config:
    changes = {"partial_rotary_factor": 0.75, "rope_scaling": _LONGROPE, "tie_word_embeddings": True, **changes}
    return _phi3(**changes)


def _smollm3(**changes: Any) -> Config:
    return _config("SmolLM3ForCausalLM", "smollm3", **{"num_hidden_layers": 4, "rope_theta": 50000.0, **changes})


def _olmo3(**changes: Any) -> Config:
    return _config(
        "Olmo3ForCausalLM", "olmo3", **{"num_hidden_layers": 4, "sliding_window": 8, "rope_theta": 500000.0, **changes}
    )


def _granite(**changes: Any) -> Config:
    return _config("GraniteForCausalLM", "granite", **{**_GRANITE, **changes})


def _granite4(**changes: Any) -> Config:
    defaults = {
        **_GRANITE,
        "layer_types": ["attention", "attention"],
        "num_local_experts": 0,
        "num_experts_per_tok": 0,
        "shared_intermediate_size": 80,
        "mamba_n_heads": 4,
        "position_embedding_type": "rope",
    }
    return _config("GraniteMoeHybridForCausalLM", "granitemoehybrid", **{**defaults, **changes})


def _gemma2(**changes: Any) -> Config:
    defaults = {
        "head_dim": 24,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 24,
        "sliding_window": 8,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0,
        "tie_word_embeddings": True,
    }
    return _config("Gemma2ForCausalLM", "gemma2", **{**defaults, **changes})


def _glm(architecture: str, model_type: str, **changes: Any) -> Config:
    return _config(architecture, model_type, **{"head_dim": 16, "rope_theta": 10000.0, **changes})


def _ministral3(**changes: Any) -> Config:
    rope = {**_YARN, "rope_theta": 1000000.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.5}
    return _config("Ministral3ForCausalLM", "ministral3", **{"head_dim": 24, "rope_parameters": rope, **changes})


def _exaone4(**changes: Any) -> Config:
    return _config(
        "Exaone4ForCausalLM", "exaone4", **{"num_hidden_layers": 4, "rope_theta": 1000000.0, "sliding_window": 8, **changes}
    )


def _seed_oss(**changes: Any) -> Config:
    return _config("SeedOssForCausalLM", "seed_oss", **{"head_dim": 24, "rope_theta": 10000000.0, **changes})


_LLAMA3: Config = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

VARIANTS: dict[str, Variant] = {
    "phi3": Variant(_phi3(num_key_value_heads=4)),
    "phi3-window": Variant(_phi3(sliding_window=8)),
    "phi4-longrope-short": Variant(_phi4()),
    "phi4-longrope-long": Variant(_phi4(original_max_position_embeddings=32), prompts=(40, 60)),
    "smollm3": Variant(_smollm3(tie_word_embeddings=True)),
    "smollm3-sliding": Variant(
        _smollm3(no_rope_layers=[1, 0, 0, 1], use_sliding_window=True, sliding_window=8, attention_bias=True, mlp_bias=True)
    ),
    "olmo2": Variant(_config("Olmo2ForCausalLM", "olmo2", num_key_value_heads=4, rope_theta=500000.0)),
    "olmo2-gqa-bias": Variant(_config("Olmo2ForCausalLM", "olmo2", attention_bias=True, rope_theta=500000.0)),
    "olmo3": Variant(_olmo3()),
    "olmo3-yarn": Variant(_olmo3(rope_scaling={**_YARN, "attention_factor": 1.2})),
    "granite": Variant(_granite()),
    "granite-tied-bias": Variant(_granite(tie_word_embeddings=True, attention_bias=True, mlp_bias=True)),
    "granite4": Variant(_granite4(tie_word_embeddings=True)),
    "granite4-unrotated": Variant(_granite4(position_embedding_type=None)),
    "gemma2": Variant(_gemma2()),
    "gemma2-uncapped": Variant(
        _gemma2(attn_logit_softcapping=None, final_logit_softcapping=None, attention_bias=True, query_pre_attn_scalar=20)
    ),
    "glm": Variant(_glm("GlmForCausalLM", "glm")),
    "glm4": Variant(_glm("Glm4ForCausalLM", "glm4")),
    "glm4-whole-heads": Variant(_glm("Glm4ForCausalLM", "glm4", attention_bias=False, partial_rotary_factor=1.0)),
    "ministral": Variant(
        _config(
            "MinistralForCausalLM",
            "ministral",
            sliding_window=8,
            layer_types=["full_attention", "sliding_attention"],
            head_dim=24,
            rope_theta=10000.0,
        )
    ),
    "ministral3": Variant(_ministral3()),
    "ministral3-window-tied": Variant(_ministral3(sliding_window=8, tie_word_embeddings=True)),
    "exaone4": Variant(_exaone4()),
    "exaone4-llama3": Variant(_exaone4(rope_scaling=_LLAMA3, tie_word_embeddings=True)),
    "exaone4-full": Variant(_exaone4(sliding_window=None, layer_types=["full_attention"] * 4)),
    "seed-oss": Variant(_seed_oss()),
    "seed-oss-biases": Variant(_seed_oss(attention_out_bias=True, mlp_bias=True)),
    "qwen2-yarn": Variant(_config("Qwen2ForCausalLM", "qwen2", rope_theta=1000000.0, rope_scaling=_YARN)),
}
