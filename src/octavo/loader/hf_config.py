"""ModelConfig from a Hugging Face folder: config.json, with stop ids and sampling defaults of generation_config.json.

Absent keys get the defaults that transformers' configuration classes give them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from octavo.config.model import ModelConfig, PoolingConfig, RopeConfig
from octavo.errors import LoadError
from octavo.loader.fields import Fields, read_json_object, shown
from octavo.loader.hf_common import (
    MAX_WIDTH,
    MAX_WINDOW,
    dense_config,
    fit_window,
    gemma_embedding_scale,
    read_activation,
    read_bos,
    read_dtype,
    read_eos,
    read_layer_kinds,
    read_qwen_window,
    read_sizes,
    read_window,
    text_part,
)
from octavo.loader.hf_experts import EXPERT_READERS
from octavo.loader.hf_families import FAMILY_READERS
from octavo.loader.hf_quantisation import read_quantisation
from octavo.loader.rope_config import ropes_by_layer_kind
from octavo.loader.sampling_advice import SamplingAdvice
from octavo.loader.sentence_files import read_max_length, read_pooling
from octavo.log import get_logger

_logger = get_logger(__name__)
_NUMBER_DEFAULTS = {
    "temperature": (0.0, 100.0),
    "top_p": (1e-6, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 100.0),
}
_MAX_WHOLE = (1 << 31) - 1


def read_hf_config(folder: Path, *, quiet: bool = False) -> tuple[ModelConfig, SamplingAdvice]:
    """The model's configuration and the advice on sampling. Raises: LoadError naming file and key; weights are not touched.

    quiet: log no warnings.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise LoadError(f"{folder}: no config.json; expected a Hugging Face model folder or a .gguf file")
    fields = Fields(read_json_object(path), str(path), quiet=quiet)
    generation = _generation_fields(folder / "generation_config.json", quiet)
    config = model_config(fields, generation, folder)
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


def model_config(fields: Fields, generation: Fields, folder: Path | None = None) -> ModelConfig:
    """Choose the architecture's reader by the first known name in `architectures`. folder: where config.json lies."""
    names = fields.value("architectures")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise fields.error("architectures", f"is {shown(names)}, expected a list of class names")
    quantised = read_quantisation(fields, folder)
    name = next((name for name in names if name in READERS), None)
    if name is None:
        raise fields.error("architectures", f"names the unknown {', '.join(names)[:100]}; known: {', '.join(READERS)}")
    return replace(READERS[name](fields, generation), quantised=quantised)


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
    bias = fields.flag("attention_bias", False)
    return dense_config(
        fields,
        generation,
        "LlamaForCausalLM",
        attention_bias=bias,
        attention_out_bias=bias,
        mlp_bias=fields.flag("mlp_bias", False),
    )


def _mistral(fields: Fields, generation: Fields) -> ModelConfig:
    """Every layer slides when there is a window."""
    return dense_config(fields, generation, "MistralForCausalLM", window=read_window(fields), default_kv_heads=8)


def _qwen2(fields: Fields, generation: Fields) -> ModelConfig:
    window, slides = read_qwen_window(fields)
    return dense_config(
        fields, generation, "Qwen2ForCausalLM", window=window, slides=slides, attention_bias=True, default_kv_heads=32
    )


def _qwen3(fields: Fields, generation: Fields) -> ModelConfig:
    window, slides = read_qwen_window(fields)
    bias = fields.flag("attention_bias", False)
    return dense_config(
        fields,
        generation,
        "Qwen3ForCausalLM",
        window=window,
        slides=slides,
        attention_bias=bias,
        attention_out_bias=bias,
        default_head_dim=128,
        default_kv_heads=32,
    )


def _gemma3(fields: Fields, generation: Fields) -> ModelConfig:
    sizes = read_sizes(fields, 256, 4)
    vocab_size, head_dim, max_position = sizes["vocab_size"], sizes["head_dim"], sizes["max_position"]
    if fields.flag("use_bidirectional_attention", False):
        raise fields.error("use_bidirectional_attention", "is true; octavo generates text with causal attention only")
    window = fields.integer("sliding_window", 4096, high=MAX_WINDOW)
    pattern = fields.integer("sliding_window_pattern", 6)
    kinds = read_layer_kinds(fields, sizes["num_layers"], window, lambda layer: (layer + 1) % pattern != 0)
    full_rope, local_rope = ropes_by_layer_kind(fields, head_dim, max_position, 1_000_000.0, 10_000.0)
    bias = fields.flag("attention_bias", False)
    return ModelConfig(
        architecture="Gemma3ForCausalLM",
        **sizes,
        norm_eps=fields.number("rms_norm_eps", 1e-6, high=1.0),
        rope=full_rope,
        local_rope=local_rope,
        hidden_act=read_activation(fields, "hidden_activation", "gelu_pytorch_tanh"),
        tie_embeddings=fields.flag("tie_word_embeddings", True),
        attention_bias=bias,
        attention_out_bias=bias,
        layer_kinds=kinds,
        sliding_window=fit_window(window) if "sliding" in kinds else None,
        query_scale=fields.number("query_pre_attn_scalar", 256.0, low_open=True) ** -0.5,
        attn_softcap=fields.optional_number("attn_logit_softcapping", low_open=True),
        final_softcap=fields.optional_number("final_logit_softcapping", low_open=True),
        embedding_scale=gemma_embedding_scale(sizes["hidden_size"]),
        dtype=read_dtype(fields),
        bos_token_id=read_bos(fields, generation, vocab_size),
        eos_token_ids=read_eos(fields, generation, vocab_size),
    )


def _gemma3_text_part(fields: Fields, generation: Fields) -> ModelConfig:
    """Gemma3ForConditionalGeneration, text only."""
    return _gemma3(text_part(fields), generation)


def _bert(fields: Fields, generation: Fields) -> ModelConfig:
    """BERT (Devlin et al., 2019), the encoder alone: learned positions, norms behind each sublayer, biases everywhere."""
    sizes = read_sizes(fields, None, None)
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
        dtype=read_dtype(fields),
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


READERS: dict[str, Callable[[Fields, Fields], ModelConfig]] = {
    "LlamaForCausalLM": _llama,
    "MistralForCausalLM": _mistral,
    "MinistralForCausalLM": _mistral,
    "Qwen2ForCausalLM": _qwen2,
    "Qwen3ForCausalLM": _qwen3,
    "Gemma3ForCausalLM": _gemma3,
    "Gemma3ForConditionalGeneration": _gemma3_text_part,
    "LlamaModel": _headless(_llama),
    "MistralModel": _headless(_mistral),
    "Qwen2Model": _headless(_qwen2),
    "Qwen3Model": _headless(_qwen3),
    "BertModel": _bert,
    **FAMILY_READERS,
    **EXPERT_READERS,
}
"""Name in `architectures` -> what reads the rest of the file."""
