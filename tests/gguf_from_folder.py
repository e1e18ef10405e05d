"""Tiny models as GGUF files under llama.cpp's names, by the `gguf` package alone: what its converter would make of a folder.

Tensor names come from the package's own maps; the keys and what is done to the tensors follow llama.cpp's converter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Config = dict[str, Any]

ARCHITECTURES = {
    "Phi3ForCausalLM": gguf.MODEL_ARCH.PHI3,
    "SmolLM3ForCausalLM": gguf.MODEL_ARCH.SMOLLM3,
    "Olmo2ForCausalLM": gguf.MODEL_ARCH.OLMO2,
    "Olmo3ForCausalLM": gguf.MODEL_ARCH.OLMO2,
    "GraniteForCausalLM": gguf.MODEL_ARCH.GRANITE,
    "GraniteMoeHybridForCausalLM": gguf.MODEL_ARCH.GRANITE,
    "Gemma2ForCausalLM": gguf.MODEL_ARCH.GEMMA2,
    "Glm4ForCausalLM": gguf.MODEL_ARCH.GLM4,
    "Ministral3ForCausalLM": gguf.MODEL_ARCH.MISTRAL3,
    "Exaone4ForCausalLM": gguf.MODEL_ARCH.EXAONE4,
    "SeedOssForCausalLM": gguf.MODEL_ARCH.SEED_OSS,
    "Qwen2ForCausalLM": gguf.MODEL_ARCH.QWEN2,
    "Qwen2MoeForCausalLM": gguf.MODEL_ARCH.QWEN2MOE,
    "Qwen3MoeForCausalLM": gguf.MODEL_ARCH.QWEN3MOE,
    "MixtralForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "OlmoeForCausalLM": gguf.MODEL_ARCH.OLMOE,
    "GraniteMoeForCausalLM": gguf.MODEL_ARCH.GRANITE_MOE,
    "GraniteMoeSharedForCausalLM": gguf.MODEL_ARCH.GRANITE_MOE,
}
_LLAMA3_KEYS = ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
_PAIRED = ("smollm3", "granite", "mistral3", "llama", "granitemoe")
"""Architectures whose heads of q and k are stored in pairs."""


def write(path: Path, config: Config, tensors: Mapping[str, F32], kind: str = "F32") -> Path:
    """Write the file; matrices are stored as `kind` where their columns fill its blocks. Returns path."""
    architecture = ARCHITECTURES[config["architectures"][0]]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    _write_sizes(writer, config)
    _write_rope(writer, config)
    _write_own_keys(writer, config)
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    for name, values in _converted(config, tensors).items():
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored is not None, f"{name} has no name in GGUF"
        if values.ndim == 1 or kind == "F32" or values.shape[-1] % 32:
            writer.add_tensor(stored, values)
        else:
            form = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(stored, gguf.quantize(values, form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_sizes(writer: gguf.GGUFWriter, config: Config) -> None:
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    is_granite4 = config["model_type"] == "granitemoehybrid"
    writer.add_feed_forward_length(config["shared_intermediate_size" if is_granite4 else "intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    num_experts = config.get("num_experts") or config.get("num_local_experts")
    if num_experts:
        writer.add_expert_count(num_experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    shared = config.get("shared_expert_intermediate_size") or config.get("shared_intermediate_size")
    if shared and not is_granite4:
        writer.add_expert_shared_feed_forward_length(shared)
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])


def _write_rope(writer: gguf.GGUFWriter, config: Config) -> None:
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    is_glm = writer.arch == "glm4"
    writer.add_rope_dimension_count(int(head_dim * config.get("partial_rotary_factor", 0.5 if is_glm else 1.0)))
    writer.add_rope_freq_base({"rope_theta": 10000.0, **config, **scaling}["rope_theta"])
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
    elif kind == "longrope":  # Phi-3: no type is written
        original = config["original_max_position_embeddings"]
        scale = config["max_position_embeddings"] / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)))
        writer.add_tensor("rope_factors_long.weight", np.array(scaling["long_factor"], np.float32))
        writer.add_tensor("rope_factors_short.weight", np.array(scaling["short_factor"], np.float32))
    elif kind == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_divisors(scaling, config["rope_theta"], head_dim))


def _llama3_divisors(scaling: Config, theta: float, head_dim: int) -> F32:
    divisors = []
    for index in range(0, head_dim, 2):
        wavelength = 2 * math.pi * theta ** (index / head_dim)
        original, low, high = (
            scaling["original_max_position_embeddings"],
            scaling["low_freq_factor"],
            scaling["high_freq_factor"],
        )
        smooth = min(max((original / wavelength - low) / (high - low), 0.0), 1.0)
        divisors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return np.array(divisors, np.float32)


def _write_own_keys(writer: gguf.GGUFWriter, config: Config) -> None:
    if writer.arch == "phi3":
        writer.add_sliding_window(config.get("sliding_window") or 0)
    elif writer.arch in ("gemma2", "exaone4", "olmo2") and config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
        if writer.arch == "olmo2":
            writer.add_sliding_window_pattern([(layer + 1) % 4 != 0 for layer in range(config["num_hidden_layers"])])
    if writer.arch == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if writer.arch in ("granite", "granitemoe"):
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    if writer.arch == "mistral3":
        writer.add_rope_scaling_yarn_log_mul(config["rope_parameters"]["mscale_all_dim"])
        writer.add_attn_temperature_scale(config["rope_parameters"]["llama_4_scaling_beta"])


def _converted(config: Config, tensors: Mapping[str, F32]) -> dict[str, F32]:
    """What the converter does to tensors before it names them."""
    architecture = gguf.MODEL_ARCH_NAMES[ARCHITECTURES[config["architectures"][0]]]
    found: dict[str, F32] = {}
    for name, values in _stacked(config, tensors).items():
        if architecture in _PAIRED and ("q_proj" in name or "k_proj" in name):
            heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
            rows = values.shape[0] // heads
            values = values.reshape(heads, 2, rows // 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            values = values + np.float32(1)
        if architecture == "qwen2moe" and name.endswith("shared_expert_gate.weight"):
            values = values[0]
        if "shared_mlp" in name and architecture == "granitemoe":
            found |= _granite_shared(name, values)
        elif "shared_mlp.input_linear" in name:
            gate, up = np.split(values, 2)
            found[name.replace("shared_mlp.input_linear", "mlp.gate_proj")] = gate
            found[name.replace("shared_mlp.input_linear", "mlp.up_proj")] = up
        else:
            found[name.replace("shared_mlp.output_linear", "mlp.down_proj")] = np.ascontiguousarray(values)
    return found


def _stacked(config: Config, tensors: Mapping[str, F32]) -> dict[str, F32]:
    """Experts of a layer as one array for each of gate, up and down, under names that the package's maps know."""
    found: dict[str, F32] = {}
    stacks: dict[str, dict[int, F32]] = {}
    for name, values in tensors.items():
        stem, _, rest = name.partition(".experts.")
        if name.endswith("block_sparse_moe.input_linear.weight"):
            gate, up = np.split(values, 2, axis=1)
            layer = name.removesuffix(".block_sparse_moe.input_linear.weight")
            found[f"{layer}.mlp.experts.gate_proj.weight"] = np.ascontiguousarray(gate)
            found[f"{layer}.mlp.experts.up_proj.weight"] = np.ascontiguousarray(up)
        elif rest:
            expert, kind, _ = rest.split(".")
            kind = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}.get(kind, kind)
            stacks.setdefault(f"{stem.replace('block_sparse_moe', 'mlp')}.experts.{kind}.weight", {})[int(expert)] = values
        else:
            found[name] = values
    return found | {name: np.stack([experts[index] for index in sorted(experts)]) for name, experts in stacks.items()}


def _granite_shared(name: str, values: F32) -> dict[str, F32]:
    if "output_linear" in name:
        return {name.replace("shared_mlp.output_linear", "mlp.shared_expert.down_proj"): values}
    gate, up = np.split(values, 2)
    return {
        name.replace("shared_mlp.input_linear", "mlp.shared_expert.gate_proj"): np.ascontiguousarray(gate),
        name.replace("shared_mlp.input_linear", "mlp.shared_expert.up_proj"): np.ascontiguousarray(up),
    }
