"""What the readers of config.json share: dimensions, windows, activation, token ids, the configuration of a Llama-like model.

Absent keys get the defaults that transformers' configuration classes give them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

import numpy as np

from octavo.config.model import LayerKind, ModelConfig
from octavo.loader.fields import Fields, shown
from octavo.loader.rope_config import extended_context, rope_from_fields

MAX_VOCAB, MAX_WIDTH, MAX_LAYERS, MAX_HEADS, MAX_HEAD_DIM, MAX_POSITION = 1 << 24, 1 << 20, 1024, 4096, 4096, 1 << 30
MAX_WINDOW = 1 << 62
"""Files write "no window" as the largest number that they can."""
MIN_MULTIPLIER, MAX_MULTIPLIER = 1e-6, 1e6
"""Of embeddings, sublayers, scores and logits (Granite): what leaves an epsilon divided by a square finite."""
_LAYER_KINDS: dict[str, LayerKind] = {"full_attention": "full", "sliding_attention": "sliding"}
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_pytorch_tanh", "gelu": "gelu"}
_DTYPES = ("float32", "bfloat16", "float16")


class Sizes(TypedDict):
    """The dimensions of ModelConfig, to be passed on by name."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position: int


def dense_config(
    fields: Fields,
    generation: Fields,
    architecture: str,
    *,
    window: int | None = None,
    slides: Callable[[int], bool] = lambda layer: True,
    attention_bias: bool = False,
    attention_out_bias: bool = False,
    mlp_bias: bool = False,
    default_head_dim: int | None = None,
    default_kv_heads: int | None = None,
    default_eps: float = 1e-6,
    default_theta: float = 10_000.0,
    default_tied: bool = False,
) -> ModelConfig:
    """The shape that Llama and most families share. window, slides: which layers slide, where no layer_types are listed."""
    sizes = read_sizes(fields, default_head_dim, default_kv_heads)
    kinds = read_layer_kinds(fields, sizes["num_layers"], window, slides)
    vocab_size, head_dim = sizes["vocab_size"], sizes["head_dim"]
    rope = rope_from_fields(fields, head_dim, sizes["max_position"], default_theta)
    sizes["max_position"] = min(extended_context(rope, sizes["max_position"]), MAX_POSITION)
    return ModelConfig(
        architecture=architecture,
        **sizes,
        norm_eps=fields.number("rms_norm_eps", default_eps, high=1.0),
        rope=rope,
        hidden_act=read_activation(fields, "hidden_act", "silu"),
        tie_embeddings=fields.flag("tie_word_embeddings", default_tied),
        attention_bias=attention_bias,
        attention_out_bias=attention_out_bias,
        mlp_bias=mlp_bias,
        layer_kinds=kinds,
        sliding_window=fit_window(window) if "sliding" in kinds else None,
        query_scale=head_dim**-0.5,
        dtype=read_dtype(fields),
        bos_token_id=read_bos(fields, generation, vocab_size),
        eos_token_ids=read_eos(fields, generation, vocab_size),
    )


def gemma_embedding_scale(hidden_size: int) -> float:
    """sqrt(hidden_size) as float32. transformers casts the factor to the dtype the model runs in; octavo's activations are
    float32 whatever the weights are stored as, so nothing is rounded further."""
    return float(np.float32(hidden_size**0.5))


def read_sizes(fields: Fields, default_head_dim: int | None, default_kv_heads: int | None) -> Sizes:
    """The dimensions every architecture has, checked against each other."""
    hidden_size = fields.integer("hidden_size", high=MAX_WIDTH)
    num_heads = fields.integer("num_attention_heads", high=MAX_HEADS)
    num_kv_heads = fields.integer("num_key_value_heads", default_kv_heads or num_heads, high=MAX_HEADS)
    if num_heads % num_kv_heads:
        raise fields.error("num_key_value_heads", f"is {num_kv_heads}, which does not divide num_attention_heads {num_heads}")
    if default_head_dim is None and not fields.has("head_dim") and hidden_size % num_heads:
        raise fields.error("hidden_size", f"is {hidden_size}, no multiple of {num_heads} heads, and head_dim is absent")
    head_dim = fields.integer("head_dim", default_head_dim or hidden_size // num_heads, high=MAX_HEAD_DIM)
    if head_dim % 2:
        raise fields.error("head_dim", f"is {head_dim}; rotary embedding needs an even number")
    return {
        "vocab_size": fields.integer("vocab_size", high=MAX_VOCAB),
        "hidden_size": hidden_size,
        "intermediate_size": fields.integer("intermediate_size", high=MAX_WIDTH),
        "num_layers": fields.integer("num_hidden_layers", high=MAX_LAYERS),
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_dim": head_dim,
        "max_position": fields.integer("max_position_embeddings", high=MAX_POSITION),
    }


def read_window(fields: Fields) -> int | None:
    """Absent it is 4096, as in transformers; null turns it off."""
    return 4096 if "sliding_window" not in fields.values else fields.optional_integer("sliding_window", low=1, high=MAX_WINDOW)


def read_qwen_window(fields: Fields) -> tuple[int | None, Callable[[int], bool]]:
    """Layers from max_window_layers on slide, if use_sliding_window."""
    window = read_window(fields) if fields.flag("use_sliding_window", False) else None
    first = 0 if window is None else fields.integer("max_window_layers", 28, low=0)
    return window, lambda layer: layer >= first


def fit_window(window: int | None) -> int | None:
    """A window wider than any context sees the same as one that 31 bits can hold."""
    return None if window is None else min(window, MAX_POSITION)


def read_layer_kinds(
    fields: Fields, num_layers: int, window: int | None, slides: Callable[[int], bool]
) -> tuple[LayerKind, ...]:
    """One kind per layer: from layer_types when the file has it, else by the architecture's rule."""
    if not fields.has("layer_types"):
        return tuple("sliding" if window is not None and slides(layer) else "full" for layer in range(num_layers))
    names = fields.value("layer_types")
    if not isinstance(names, list) or len(names) != num_layers or any(name not in _LAYER_KINDS for name in map(str, names)):
        raise fields.error("layer_types", f"must list {num_layers} times one of {', '.join(_LAYER_KINDS)}")
    kinds = tuple(_LAYER_KINDS[str(name)] for name in names)
    if window is None and "sliding" in kinds:
        raise fields.error("layer_types", "names sliding layers, but no sliding_window is set")
    return kinds


def read_activation(fields: Fields, key: str, default: str) -> str:
    name = fields.text(key, default)
    if name not in _ACTIVATIONS:
        raise fields.error(key, f"is {shown(name)}; known: {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def read_dtype(fields: Fields) -> str:
    """What the file says its weights are; the weights themselves decide, where there are any."""
    names = (fields.values.get("dtype"), fields.values.get("torch_dtype"))
    return next((name for name in names if isinstance(name, str) and name in _DTYPES), "float32")


def read_bos(fields: Fields, generation: Fields, vocab_size: int) -> int | None:
    ids = generation.token_ids("bos_token_id", vocab_size) or fields.token_ids("bos_token_id", vocab_size)
    return ids[0] if ids else None


def read_eos(fields: Fields, generation: Fields, vocab_size: int) -> tuple[int, ...]:
    return generation.token_ids("eos_token_id", vocab_size) or fields.token_ids("eos_token_id", vocab_size)


def text_part(fields: Fields) -> Fields:
    """The text_config of a model that sees images too, with token ids and dtype of the outer level as fallback."""
    inner = fields.section("text_config")
    if inner is None:
        raise fields.error("text_config", "is missing")
    outer = ("torch_dtype", "dtype", "bos_token_id", "eos_token_id")
    values = {**{key: fields.values[key] for key in outer if fields.has(key)}, **inner.values}
    return Fields(values, inner.source, quiet=fields.quiet)
