"""GGUF tensors under their Hugging Face names and with Hugging Face's meaning.

Converters change three things that are undone here, lazily: names; for the Llama architecture the row order of q and k (rope on
neighbouring pairs instead of halves); for Gemma the norm weights, which carry an added 1 that Hugging Face adds in its model.
"""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from octavo.config.model import ModelConfig
from octavo.errors import LoadError
from octavo.loader.formats import dequantise
from octavo.loader.gguf import GgufFile, GgufTensor
from octavo.loader.stored import StoredTensor

log = logging.getLogger(__name__)

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GEMMA3_LAYER = _LAYER | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_CONFIG_TENSORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")
"""Read into RopeConfig; they are no parameters."""


def name_tensors(files: list[GgufFile], config: ModelConfig) -> dict[str, StoredTensor]:
    """Every tensor of the files that has a Hugging Face name; others are logged at debug level and left out.

    Raises: LoadError naming file and tensor if two shards hold the same tensor or a q or k cannot be un-permuted.
    """
    layer_names = _GEMMA3_LAYER if config.architecture == "Gemma3ForCausalLM" else _LAYER
    permuted = config.architecture in ("LlamaForCausalLM", "MistralForCausalLM")
    orders = {
        "attn_q": _half_split_order(config.num_heads, config.head_dim),
        "attn_k": _half_split_order(config.num_kv_heads, config.head_dim),
    }
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        for tensor in file.tensors.values():
            name, kind = _hugging_face_name(tensor.name, layer_names)
            if name is None:
                if tensor.name not in _CONFIG_TENSORS:
                    log.debug("%s: not used by %s", tensor.source, config.architecture)
                continue
            if name in tensors:
                raise LoadError(f"{tensor.source}: the tensor is also in another shard")
            order = orders.get(kind) if permuted else None
            if order is not None and tensor.shape[0] != len(order):
                raise LoadError(f"{tensor.source}: has {tensor.shape[0]} rows, expected {len(order)}")
            plus_one = config.architecture == "Gemma3ForCausalLM" and kind.endswith("norm")
            tensors[name] = _stored(name, tensor, order, plus_one)
    return tensors


def _hugging_face_name(name: str, layer_names: dict[str, str]) -> tuple[str | None, str]:
    """ "blk.3.attn_q.weight" -> ("model.layers.3.self_attn.q_proj.weight", "attn_q"); (None, "") when there is none."""
    parts = name.split(".")
    if len(parts) == 2 and parts[0] in _TOP and parts[1] in ("weight", "bias"):
        return f"{_TOP[parts[0]]}.{parts[1]}", parts[0]
    is_layer = len(parts) == 4 and parts[0] == "blk" and parts[1].isdecimal() and parts[1].isascii()
    if is_layer and parts[2] in layer_names and parts[3] in ("weight", "bias") and len(parts[1]) < 6:
        return f"model.layers.{int(parts[1])}.{layer_names[parts[2]]}.{parts[3]}", parts[2]
    return None, ""


def _half_split_order(num_heads: int, head_dim: int) -> NDArray[np.int32]:
    """row_order that undoes the converter's permutation of q or k, int32 [num_heads * head_dim].

    Per head the file interleaves the halves: logical row (half, i) is stored at row 2 * i + half.
    """
    within = np.arange(head_dim, dtype=np.int32).reshape(head_dim // 2, 2).T.ravel()
    heads = np.arange(num_heads, dtype=np.int32)[:, None] * np.int32(head_dim)
    order: NDArray[np.int32] = (heads + within).ravel()
    return order


def _stored(name: str, tensor: GgufTensor, order: NDArray[np.int32] | None, plus_one: bool) -> StoredTensor:
    if not plus_one:
        return StoredTensor(name, tensor.shape, tensor.format, tensor.data, order, tensor.source)
    # Exact wherever the model's own 1 + weight can show it: for stored values of at least 0.5 the difference is a float32.
    weight = dequantise(tensor.format, tensor.data, tensor.shape[-1]) - np.float32(1)
    return StoredTensor(name, tensor.shape, "f32", weight.view(np.uint8), None, tensor.source)
