"""ModelConfig from a Hugging Face folder: config.json, with stop ids and sampling defaults of generation_config.json.

Absent keys get the defaults that transformers' configuration classes give them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

import numpy as np

from octavo.config.model import LayerKind, ModelConfig, PoolingConfig, RopeConfig
from octavo.errors import LoadError
from octavo.loader.fields import Fields, read_json_object, shown
from octavo.loader.rope_config import extended_context, gemma3_ropes_from_fields, rope_from_fields
from octavo.loader.sampling_advice import SamplingAdvice
from octavo.loader.sentence_files import read_max_length, read_pooling
from octavo.log import get_logger

MAX_VOCAB, MAX_WIDTH, MAX_LAYERS, MAX_HEADS, MAX_HEAD_DIM, MAX_POSITION = 1 << 24, 1 << 20, 1024, 4096, 4096, 1 << 30
MAX_WINDOW = 1 << 62
"""Files write "no window" as the largest number that they can."""
_logger = get_logger(__name__)
_LAYER_KINDS: dict[str, LayerKind] = {"full_attention": "full", "sliding_attention": "sliding"}
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_pytorch_tanh", "gelu": "gelu"}
_DTYPES = ("float32", "bfloat16", "float16")
_NUMBER_DEFAULTS = {
    "temperature": (0.0, 100.0),
    "top_p": (1e-6, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 100.0),
}
_MAX_WHOLE = (1 << 31) - 1


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


def read_hf_config(folder: Path, *, quiet: bool = False) -> tuple[ModelConfig, SamplingAdvice]:
    """The model's configuration and the advice on sampling. Raises: LoadError naming file and key; weights are not touched.

    quiet: log no warnings.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise LoadError(f"{folder}: no config.json; expected a Hugging Face model folder or a .gguf file")
    fields = Fields(read_json_object(path), str(path), quiet=quiet)
    generation = _generation_fields(folder / "generation_config.json", quiet)
    config = model_config(fields, generation)
    config = replace(config, pooling=read_pooling(folder, config.pooling))
    if not config.causal:
        config = replace(config, max_position=read_max_length(folder, config.max_position))
    values = generation_defaults(generation)
    return config, SamplingAdvice(values, "generation_config.json recommends") if values else SamplingAdvice()


def _generation_fields(path: Path, quiet: bool) -> Fields:
    """generation_config.json; one that is missing or damaged recommends nothing."""
    try:
        return Fields(read_json_object(path) if path.is_file() else {}, str(path), quiet=quiet)
    except LoadError as error:
        if not quiet:
            _logger.warning("%s; the file is ignored", error.message)
        return Fields({}, str(path), quiet=quiet)


def model_config(fields: Fields, generation: Fields) -> ModelConfig:
    """Choose the architecture's reader by the first known name in `architectures`."""
    names = fields.value("architectures")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise fields.error("architectures", f"is {shown(names)}, expected a list of class names")
    if fields.has("quantization_config"):
        section = fields.section("quantization_config")
        method = section.text("quant_method", "unknown") if section else "unknown"
        raise fields.error("quantization_config", f"names the unsupported method {shown(method)}; load a GGUF file instead")
    name = next((name for name in names if name in _READERS), None)
    if name is None:
        raise fields.error("architectures", f"names the unknown {', '.join(names)[:100]}; known: {', '.join(_READERS)}")
    return _READERS[name](fields, generation)


def generation_defaults(generation: Fields) -> dict[str, float | int]:
    """Sampling settings the checkpoint recommends: temperature, top_k, top_p, min_p, repetition_penalty, max_tokens.

    One that is out of range is left out with a warning.
    """
    advice: dict[str, float | int | None] = {
        key: generation.advice(key, low, high) for key, (low, high) in _NUMBER_DEFAULTS.items()
    }
    advice["top_k"] = generation.advice("top_k", -1, _MAX_WHOLE, whole=True)
    advice["max_tokens"] = generation.advice("max_new_tokens", 1, _MAX_WHOLE, whole=True)
    return {name: value for name, value in advice.items() if value is not None}


def _llama(fields: Fields, generation: Fields) -> ModelConfig:
    return _dense(fields, generation, "LlamaForCausalLM", biased_keys=True)


def _mistral(fields: Fields, generation: Fields) -> ModelConfig:
    """Every layer slides when there is a window."""
    return _dense(fields, generation, "MistralForCausalLM", window=_window(fields), default_kv_heads=8)


def _qwen2(fields: Fields, generation: Fields) -> ModelConfig:
    return _qwen(fields, generation, "Qwen2ForCausalLM", attention_bias=True)


def _qwen3(fields: Fields, generation: Fields) -> ModelConfig:
    return _qwen(fields, generation, "Qwen3ForCausalLM", default_head_dim=128, biased_keys=True)


def _qwen(
    fields: Fields,
    generation: Fields,
    architecture: str,
    *,
    attention_bias: bool = False,
    biased_keys: bool = False,
    default_head_dim: int | None = None,
) -> ModelConfig:
    """Qwen: layers from max_window_layers on slide, if use_sliding_window."""
    window = _window(fields) if fields.flag("use_sliding_window", False) else None
    return _dense(
        fields,
        generation,
        architecture,
        window=window,
        first_sliding=0 if window is None else fields.integer("max_window_layers", 28, low=0),
        attention_bias=attention_bias,
        biased_keys=biased_keys,
        default_head_dim=default_head_dim,
        default_kv_heads=32,
    )


def _dense(
    fields: Fields,
    generation: Fields,
    architecture: str,
    *,
    window: int | None = None,
    first_sliding: int = 0,
    attention_bias: bool = False,
    biased_keys: bool = False,
    default_head_dim: int | None = None,
    default_kv_heads: int | None = None,
) -> ModelConfig:
    """The shared shape of Llama, Mistral and Qwen; `biased_keys`: attention_bias and mlp_bias are read from the file (the
    attention bias then covers o_proj too)."""
    sizes = _sizes(fields, default_head_dim, default_kv_heads)
    bias = attention_bias or (biased_keys and fields.flag("attention_bias", False))
    kinds = _layer_kinds(fields, sizes["num_layers"], window, lambda layer: layer >= first_sliding)
    vocab_size, head_dim = sizes["vocab_size"], sizes["head_dim"]
    rope = rope_from_fields(fields, head_dim, sizes["max_position"])
    sizes["max_position"] = min(extended_context(rope, sizes["max_position"]), MAX_POSITION)
    return ModelConfig(
        architecture=architecture,
        **sizes,
        norm_eps=fields.number("rms_norm_eps", 1e-6, high=1.0),
        rope=rope,
        hidden_act=_activation(fields, "hidden_act", "silu"),
        tie_embeddings=fields.flag("tie_word_embeddings", False),
        attention_bias=bias,
        attention_out_bias=biased_keys and bias,
        mlp_bias=architecture == "LlamaForCausalLM" and fields.flag("mlp_bias", False),
        layer_kinds=kinds,
        sliding_window=fit_window(window) if "sliding" in kinds else None,
        query_scale=head_dim**-0.5,
        dtype=_dtype(fields),
        bos_token_id=_bos(fields, generation, vocab_size),
        eos_token_ids=_eos(fields, generation, vocab_size),
    )


def _gemma3(fields: Fields, generation: Fields) -> ModelConfig:
    sizes = _sizes(fields, 256, 4)
    vocab_size, head_dim, max_position = sizes["vocab_size"], sizes["head_dim"], sizes["max_position"]
    if fields.flag("use_bidirectional_attention", False):
        raise fields.error("use_bidirectional_attention", "is true; octavo generates text with causal attention only")
    window = fields.integer("sliding_window", 4096, high=MAX_WINDOW)
    pattern = fields.integer("sliding_window_pattern", 6)
    kinds = _layer_kinds(fields, sizes["num_layers"], window, lambda layer: (layer + 1) % pattern != 0)
    full_rope, local_rope = gemma3_ropes_from_fields(fields, head_dim, max_position)
    bias = fields.flag("attention_bias", False)
    return ModelConfig(
        architecture="Gemma3ForCausalLM",
        **sizes,
        norm_eps=fields.number("rms_norm_eps", 1e-6, high=1.0),
        rope=full_rope,
        local_rope=local_rope,
        hidden_act=_activation(fields, "hidden_activation", "gelu_pytorch_tanh"),
        tie_embeddings=fields.flag("tie_word_embeddings", True),
        attention_bias=bias,
        attention_out_bias=bias,
        layer_kinds=kinds,
        sliding_window=fit_window(window) if "sliding" in kinds else None,
        query_scale=fields.number("query_pre_attn_scalar", 256.0, low_open=True) ** -0.5,
        attn_softcap=fields.optional_number("attn_logit_softcapping", low_open=True),
        final_softcap=fields.optional_number("final_logit_softcapping", low_open=True),
        embedding_scale=gemma_embedding_scale(sizes["hidden_size"]),
        dtype=_dtype(fields),
        bos_token_id=_bos(fields, generation, vocab_size),
        eos_token_ids=_eos(fields, generation, vocab_size),
    )


def _gemma3_text_part(fields: Fields, generation: Fields) -> ModelConfig:
    """Gemma3ForConditionalGeneration, text only: its text_config, with token ids and dtype of the outer level as fallback."""
    inner = fields.section("text_config")
    if inner is None:
        raise fields.error("text_config", "is missing")
    outer = ("torch_dtype", "dtype", "bos_token_id", "eos_token_id")
    values = {**{key: fields.values[key] for key in outer if fields.has(key)}, **inner.values}
    return _gemma3(Fields(values, inner.source, quiet=fields.quiet), generation)


def _bert(fields: Fields, generation: Fields) -> ModelConfig:
    """BERT (Devlin et al., 2019), the encoder alone: learned positions, norms behind each sublayer, biases everywhere."""
    sizes = _sizes(fields, None, None)
    if sizes["num_kv_heads"] != sizes["num_heads"]:
        raise fields.error("num_key_value_heads", f"is {sizes['num_kv_heads']}; BERT has as many as num_attention_heads")
    if fields.text("position_embedding_type", "absolute") != "absolute":
        raise fields.error("position_embedding_type", "names relative positions; known: absolute")
    if fields.flag("is_decoder", False):
        raise fields.error("is_decoder", "is true; BERT is supported as an encoder only")
    activation = fields.text("hidden_act", "gelu")
    if activation != "gelu":
        raise fields.error("hidden_act", f"is {shown(activation)}; known for BERT: gelu")
    return ModelConfig(
        architecture="BertModel",
        **sizes,
        norm_eps=fields.number("layer_norm_eps", 1e-12, high=1.0),
        rope=RopeConfig(rotary_dim=sizes["head_dim"]),
        hidden_act=activation,
        attention_bias=True,
        attention_out_bias=True,
        mlp_bias=True,
        query_scale=sizes["head_dim"] ** -0.5,
        dtype=_dtype(fields),
        has_head=False,
        causal=False,
        num_positions=sizes["max_position"],
        num_token_types=fields.integer("type_vocab_size", 2, high=MAX_WIDTH),
        pooling=PoolingConfig(kind="cls"),
    )


def _headless(reader: Callable[[Fields, Fields], ModelConfig]) -> Callable[[Fields, Fields], ModelConfig]:
    """A decoder that was saved without its output head, as many models for embeddings are."""

    def read(fields: Fields, generation: Fields) -> ModelConfig:
        return replace(reader(fields, generation), has_head=False, tie_embeddings=False)

    return read


_READERS: dict[str, Callable[[Fields, Fields], ModelConfig]] = {
    "LlamaForCausalLM": _llama,
    "MistralForCausalLM": _mistral,
    "Qwen2ForCausalLM": _qwen2,
    "Qwen3ForCausalLM": _qwen3,
    "Gemma3ForCausalLM": _gemma3,
    "Gemma3ForConditionalGeneration": _gemma3_text_part,
    "LlamaModel": _headless(_llama),
    "MistralModel": _headless(_mistral),
    "Qwen2Model": _headless(_qwen2),
    "Qwen3Model": _headless(_qwen3),
    "BertModel": _bert,
}


def gemma_embedding_scale(hidden_size: int) -> float:
    """sqrt(hidden_size) as float32. transformers casts the factor to the dtype the model runs in; octavo's activations are
    float32 whatever the weights are stored as, so nothing is rounded further."""
    return float(np.float32(hidden_size**0.5))


def _sizes(fields: Fields, default_head_dim: int | None, default_kv_heads: int | None) -> Sizes:
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


def _window(fields: Fields) -> int | None:
    """Absent it is 4096, as in transformers; null turns it off."""
    return 4096 if "sliding_window" not in fields.values else fields.optional_integer("sliding_window", low=1, high=MAX_WINDOW)


def fit_window(window: int | None) -> int | None:
    """A window wider than any context sees the same as one that 31 bits can hold."""
    return None if window is None else min(window, MAX_POSITION)


def _layer_kinds(fields: Fields, num_layers: int, window: int | None, slides: Callable[[int], bool]) -> tuple[LayerKind, ...]:
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


def _activation(fields: Fields, key: str, default: str) -> str:
    name = fields.text(key, default)
    if name not in _ACTIVATIONS:
        raise fields.error(key, f"is {shown(name)}; known: {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _dtype(fields: Fields) -> str:
    """What the file says its weights are; the weights themselves decide, where there are any."""
    names = (fields.values.get("dtype"), fields.values.get("torch_dtype"))
    return next((name for name in names if isinstance(name, str) and name in _DTYPES), "float32")


def _bos(fields: Fields, generation: Fields, vocab_size: int) -> int | None:
    ids = generation.token_ids("bos_token_id", vocab_size) or fields.token_ids("bos_token_id", vocab_size)
    return ids[0] if ids else None


def _eos(fields: Fields, generation: Fields, vocab_size: int) -> tuple[int, ...]:
    return generation.token_ids("eos_token_id", vocab_size) or fields.token_ids("eos_token_id", vocab_size)
