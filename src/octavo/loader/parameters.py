"""The parameters an architecture needs, by Hugging Face name, and the check that a checkpoint has them."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.config.model import ModelConfig
from octavo.errors import LoadError
from octavo.loader.stored import StoredTensor

HEAD_NORMS = ("Qwen3ForCausalLM", "Gemma3ForCausalLM")
"""Architectures that normalise each head of q and k."""


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name -> logical shape of every parameter, in layer order: matrices [outputs, inputs], norms and biases [n].

    With tied embeddings there is no lm_head.weight.
    """
    hidden = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}."
        shapes.update({prefix + name: shape for name, shape in _layer_shapes(config).items()})
    shapes["model.norm.weight"] = (hidden,)
    if not config.tie_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes


def _layer_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The parameters of one layer, without its prefix."""
    hidden, inner = config.hidden_size, config.intermediate_size
    q_rows, kv_rows = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {"input_layernorm.weight": (hidden,)}
    for name, rows in (("q_proj", q_rows), ("k_proj", kv_rows), ("v_proj", kv_rows)):
        shapes[f"self_attn.{name}.weight"] = (rows, hidden)
        if config.attention_bias:
            shapes[f"self_attn.{name}.bias"] = (rows,)
    shapes["self_attn.o_proj.weight"] = (hidden, q_rows)
    if config.attention_out_bias:
        shapes["self_attn.o_proj.bias"] = (hidden,)
    if config.architecture in HEAD_NORMS:
        shapes["self_attn.q_norm.weight"] = (config.head_dim,)
        shapes["self_attn.k_norm.weight"] = (config.head_dim,)
    shapes["post_attention_layernorm.weight"] = (hidden,)
    if config.architecture == "Gemma3ForCausalLM":
        shapes["pre_feedforward_layernorm.weight"] = (hidden,)
        shapes["post_feedforward_layernorm.weight"] = (hidden,)
    for name, rows, columns in (("gate_proj", inner, hidden), ("up_proj", inner, hidden), ("down_proj", hidden, inner)):
        shapes[f"mlp.{name}.weight"] = (rows, columns)
        if config.mlp_bias:
            shapes[f"mlp.{name}.bias"] = (rows,)
    return shapes


def check_parameters(config: ModelConfig, tensors: Mapping[str, StoredTensor], where: str) -> None:
    """Refuse a checkpoint that lacks a parameter or holds it in another shape. Raises: LoadError naming file and tensor."""
    for name, shape in parameter_shapes(config).items():
        tensor = tensors.get(name)
        if tensor is None:
            raise LoadError(f"{where}: tensor {name} is missing; the checkpoint is incomplete or not a {config.architecture}")
        if tensor.shape != shape:
            raise LoadError(f"{tensor.source}: has shape {tensor.shape}, but the configuration makes {name} {shape}")
