"""ModelConfig from GGUF metadata. Values that a GGUF file leaves implicit follow llama.cpp's loader for the architecture."""

from __future__ import annotations

import math

from octavo.config.model import ExpertsConfig, ModelConfig, PoolingConfig, RopeConfig
from octavo.errors import LoadError
from octavo.loader.fields import Fields, shown
from octavo.loader.formats import dequantise
from octavo.loader.gguf import GgufFile, GgufTensor
from octavo.loader.gguf_families import FAMILIES, with_own_keys
from octavo.loader.hf_common import (
    MAX_HEAD_DIM,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_POSITION,
    MAX_WIDTH,
    Sizes,
    fit_window,
    gemma_embedding_scale,
)
from octavo.loader.hf_experts import MAX_EXPERTS, read_num_experts
from octavo.loader.rope_config import extended_context
from octavo.loader.sampling_advice import SamplingAdvice, advice_for_family
from octavo.pooling_params import PoolingKind

END_OF_TURN_TOKENS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|end|>")
"""Control tokens that end a turn whatever eos_token_id says: converters store one id only."""

_SAMPLING_KEYS = {
    "general.sampling.temp": ("temperature", 0.0, 100.0),
    "general.sampling.top_p": ("top_p", 1e-6, 1.0),
    "general.sampling.min_p": ("min_p", 0.0, 1.0),
    "general.sampling.penalty_repeat": ("repetition_penalty", 0.01, 100.0),
}
_LAYER_KEYS = (
    *("feed_forward_length", "attention.head_count", "attention.head_count_kv"),
    *("attention.key_length", "attention.value_length"),
)
"""Keys that may hold a list with one number per layer."""
_CONTROL_TOKEN = 3
_POOLING_KINDS: dict[int, PoolingKind] = {1: "mean", 2: "cls", 3: "last"}
_FLOAT_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def read_gguf_config(files: list[GgufFile], *, quiet: bool = False) -> tuple[ModelConfig, SamplingAdvice]:
    """The model's configuration and sampling settings from the first file's metadata and the tensors of all shards.

    quiet: log no warnings.
    Raises: LoadError naming file and key; for an unknown architecture it lists the known ones.
    """
    source = str(files[0].path)
    general = Fields(files[0].metadata, source, quiet=quiet)
    name = general.text("general.architecture")
    if name not in FAMILIES:
        raise general.error("general.architecture", f"is {shown(name)}; known: {', '.join(FAMILIES)}")
    fields = Fields(files[0].metadata, source, prefix=f"{name}.", quiet=quiet)
    tensors = {tensor.name: tensor for file in files for tensor in file.tensors.values()}
    if name == "bert":
        return _bert_config(fields, tensors), SamplingAdvice()
    return _model_config(name, general, fields, tensors), _sampling_advice(name, general)


def _model_config(name: str, general: Fields, fields: Fields, tensors: dict[str, GgufTensor]) -> ModelConfig:
    sizes, family = _sizes(fields, tensors), FAMILIES[name]
    head_dim, num_layers = sizes["head_dim"], sizes["num_layers"]
    window = family.window(fields)
    kinds = family.layer_kinds(fields, window, num_layers)
    rope = _rope(fields, tensors, head_dim, sizes["max_position"], family.default_theta)
    if rope.kind == "yarn":
        sizes["max_position"] = min(extended_context(rope, sizes["max_position"]), MAX_POSITION)
    if family.has_pairs and rope.rotary_dim != head_dim:
        raise fields.error("rope.dimension_count", f"is {rope.rotary_dim}, but octavo rotates whole heads of {head_dim} only")
    # The largest Gemma of a generation scales queries by its hidden size per head; nothing in the metadata says so.
    query_dim = sizes["hidden_size"] / sizes["num_heads"] if num_layers == family.wide_layers else head_dim
    softcap = fields.optional_number("attn_logit_softcapping", low_open=True)
    final_softcap = fields.optional_number("final_logit_softcapping", low_open=True)
    experts = _experts(name, fields, tensors, num_layers, sizes["intermediate_size"])
    architecture = family.windowed if window and family.windowed else family.architecture
    config = ModelConfig(
        architecture=family.experts if experts is not None and family.experts is not None else architecture,
        **sizes,
        norm_eps=fields.number("attention.layer_norm_rms_epsilon", high=1.0),
        rope=rope,
        hidden_act="gelu_pytorch_tanh" if family.is_gemma else "silu",
        tie_embeddings="output.weight" not in tensors,
        attention_bias="blk.0.attn_q.bias" in tensors,
        attention_out_bias="blk.0.attn_output.bias" in tensors,
        mlp_bias="blk.0.ffn_up.bias" in tensors,
        layer_kinds=kinds,
        sliding_window=fit_window(window) if "sliding" in kinds else None,
        query_scale=query_dim**-0.5,
        attn_softcap=family.attn_softcap if softcap is None else softcap,
        final_softcap=family.final_softcap if final_softcap is None else final_softcap,
        embedding_scale=gemma_embedding_scale(sizes["hidden_size"]) if family.is_gemma else 1.0,
        dtype=_dtype(tensors),
        bos_token_id=next(iter(general.token_ids("tokenizer.ggml.bos_token_id", sizes["vocab_size"])), None),
        eos_token_ids=_eos_token_ids(general, sizes["vocab_size"]),
        pooling=_pooling(fields, "last"),
        experts=experts,
    )
    return with_own_keys(name, fields, config)


def _experts(name: str, fields: Fields, tensors: dict[str, GgufTensor], num_layers: int, inner: int) -> ExpertsConfig | None:
    """The mixture of experts of a file; inner: the intermediate size where nothing tells that of experts.

    Older files have no keys for the sizes of experts, so that the tensors tell them.
    """
    family = FAMILIES[name]
    num_experts = read_num_experts(fields, "expert_count", 0, num_layers)
    if not num_experts:
        if family.architecture == family.experts:
            raise fields.error("expert_count", "is missing or 0")
        return None
    if family.experts is None:
        raise fields.error("expert_count", f"is {num_experts}; mixtures of experts are not supported in this architecture")
    top_k = fields.integer("expert_used_count", high=MAX_EXPERTS)
    if top_k > num_experts:
        raise fields.error("expert_used_count", f"is {top_k}, more than the {num_experts} experts that there are")
    stored_inner, stored_shared = (_stored_rows(tensors, stem) for stem in ("ffn_gate_exps", "ffn_gate_shexp"))
    shared = fields.integer("expert_shared_feed_forward_length", stored_shared or 0, low=0, high=MAX_WIDTH)
    return ExpertsConfig(
        num_experts=num_experts,
        top_k=top_k,
        inner=fields.integer("expert_feed_forward_length", stored_inner or inner, high=MAX_WIDTH),
        renormalise=family.renormalises,
        shared_inner=shared,
        has_shared_gate=shared > 0 and name == "qwen2moe",
    )


def _stored_rows(tensors: dict[str, GgufTensor], stem: str) -> int | None:
    """Rows of the first layer's matrix of that name, or of each matrix of a stack; None: there is none."""
    shapes = (tensor.shape for name, tensor in tensors.items() if name.endswith(f".{stem}.weight"))
    return next((shape[-2] for shape in shapes if len(shape) > 1), None)


def _bert_config(fields: Fields, tensors: dict[str, GgufTensor]) -> ModelConfig:
    sizes = _sizes(fields, tensors)
    positions, types = tensors.get("position_embd.weight"), tensors.get("token_types.weight")
    if positions is None or positions.shape[0] < sizes["max_position"]:
        raise LoadError(f"{fields.source}: tensor position_embd.weight is missing, or shorter than context_length")
    return ModelConfig(
        architecture=FAMILIES["bert"].architecture,
        **sizes,
        norm_eps=fields.number("attention.layer_norm_epsilon", high=1.0),
        rope=RopeConfig(rotary_dim=sizes["head_dim"]),
        hidden_act="gelu",
        attention_bias=True,
        attention_out_bias=True,
        mlp_bias=True,
        query_scale=sizes["head_dim"] ** -0.5,
        dtype=_dtype(tensors),
        has_head=False,
        causal=False,
        num_positions=positions.shape[0],
        num_token_types=0 if types is None else types.shape[0],
        pooling=_pooling(fields, "cls"),
    )


def _pooling(fields: Fields, default: PoolingKind) -> PoolingConfig:
    """llama.cpp normalises every pooled vector."""
    kind = fields.optional_integer("pooling_type", low=0)
    if not kind:
        return PoolingConfig(kind=default)
    if kind not in _POOLING_KINDS:
        raise fields.error("pooling_type", f"is {kind}; known: 1 (mean), 2 (cls), 3 (last)")
    return PoolingConfig(kind=_POOLING_KINDS[kind])


def _sizes(fields: Fields, tensors: dict[str, GgufTensor]) -> Sizes:
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        raise LoadError(f"{fields.source}: tensor token_embd.weight is missing")
    if len(embedding.shape) != 2:
        raise LoadError(f"{fields.source}: tensor token_embd.weight has shape {embedding.shape}, expected two dimensions")
    num_layers = fields.integer("block_count", high=MAX_LAYERS)
    fields = _of_all_layers(fields, num_layers)
    hidden_size = fields.integer("embedding_length", high=MAX_WIDTH)
    num_heads = fields.integer("attention.head_count", high=MAX_HEADS)
    num_kv_heads = fields.integer("attention.head_count_kv", num_heads, high=MAX_HEADS)
    if num_heads % num_kv_heads:
        raise fields.error("attention.head_count_kv", f"is {num_kv_heads}, which does not divide {num_heads} heads")
    if not fields.has("attention.key_length") and hidden_size % num_heads:
        raise fields.error("embedding_length", f"is {hidden_size}, no multiple of {num_heads} heads")
    head_dim = fields.integer("attention.key_length", hidden_size // num_heads, high=MAX_HEAD_DIM)
    value_dim = fields.integer("attention.value_length", head_dim, high=MAX_HEAD_DIM)
    if head_dim != value_dim or head_dim % 2:
        raise fields.error("attention.key_length", f"is {head_dim} with value_length {value_dim}; expected equal, even numbers")
    return {
        "vocab_size": embedding.shape[0],
        "hidden_size": hidden_size,
        "intermediate_size": fields.integer("feed_forward_length", high=MAX_WIDTH),
        "num_layers": num_layers,
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_dim": head_dim,
        "max_position": fields.integer("context_length", high=MAX_POSITION),
    }


def _of_all_layers(fields: Fields, num_layers: int) -> Fields:
    """fields, in which a list of num_layers equal numbers is that number: the two mean the same to llama.cpp."""
    values = dict(fields.values)
    for key in _LAYER_KEYS:
        value = fields.values.get(fields.prefix + key)
        if not isinstance(value, list):
            continue
        if len(value) != num_layers:
            raise fields.error(key, f"lists {len(value)} numbers, expected one for each of {num_layers} layers")
        if any(item != value[0] for item in value):
            other = next(layer for layer, item in enumerate(value) if item != value[0])
            raise fields.error(
                key, f"is {shown(value[0])} for layer 0 and {shown(value[other])} for layer {other}; layers must be alike"
            )
        values[fields.prefix + key] = value[0]
    return Fields(values, fields.source, fields.prefix, quiet=fields.quiet)


def _rope(fields: Fields, tensors: dict[str, GgufTensor], head_dim: int, max_position: int, default_theta: float) -> RopeConfig:
    """Rope of the full layers. `rope_freqs.weight` (Llama 3.1's scaling, worked out by the converter) becomes divisors."""
    theta = fields.number("rope.freq_base", default_theta, low_open=True)
    rotary_dim = fields.integer("rope.dimension_count", head_dim, low=2, high=head_dim)
    if rotary_dim % 2:
        raise fields.error("rope.dimension_count", f"is {rotary_dim}, expected an even number")
    divisors = _factors(fields, tensors, "rope_freqs.weight", rotary_dim)
    implied = "longrope" if "rope_factors_long.weight" in tensors else "none"  # Phi-3 has the factors alone
    kind = fields.text("rope.scaling.type", "linear" if fields.has("rope.scale_linear") else implied)
    factor = fields.number("rope.scaling.factor", fields.number("rope.scale_linear", 1.0, low_open=True), low_open=True)
    original = fields.integer("rope.scaling.original_context_length", max_position)
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return RopeConfig(theta=theta, rotary_dim=rotary_dim, frequency_divisors=divisors)
    if kind == "linear":
        return RopeConfig(kind="linear", theta=theta, rotary_dim=rotary_dim, factor=factor, frequency_divisors=divisors)
    attention = fields.optional_number("rope.scaling.attn_factor", low_open=True)
    if kind == "yarn":
        return RopeConfig(
            kind="yarn",
            theta=theta,
            rotary_dim=rotary_dim,
            factor=factor,
            original_max_position=original,
            beta_fast=fields.number("rope.scaling.yarn_beta_fast", 32.0, low_open=True),
            beta_slow=fields.number("rope.scaling.yarn_beta_slow", 1.0, low_open=True),
            # Here attn_factor multiplies YaRN's own factor; Hugging Face's attention_factor replaces it.
            attention_factor=None if attention is None else attention * (0.1 * math.log(max(factor, 1.0)) + 1.0),
            frequency_divisors=divisors,
        )
    if kind == "longrope":
        short = _factors(fields, tensors, "rope_factors_short.weight", rotary_dim)
        long = _factors(fields, tensors, "rope_factors_long.weight", rotary_dim)
        if short is None or long is None:
            raise LoadError(
                f"{fields.source}: longrope needs the tensors rope_factors_short.weight and rope_factors_long.weight"
            )
        return RopeConfig(
            kind="longrope",
            theta=theta,
            rotary_dim=rotary_dim,
            factor=max_position / original,
            original_max_position=original,
            attention_factor=attention,
            short_factors=short,
            long_factors=long,
        )
    raise fields.error("rope.scaling.type", f"is {shown(kind)}; known: none, linear, yarn, longrope")


def _factors(fields: Fields, tensors: dict[str, GgufTensor], name: str, rotary_dim: int) -> tuple[float, ...] | None:
    """A small float tensor [rotary_dim / 2] of the file as numbers, or None when absent."""
    tensor = tensors.get(name)
    if tensor is None:
        return None
    if tensor.shape != (rotary_dim // 2,):
        raise LoadError(f"{fields.source}: tensor {name} has shape {tensor.shape}, expected ({rotary_dim // 2},)")
    values = tuple(float(value) for value in dequantise(tensor.format, tensor.data, rotary_dim // 2)[0])
    if not all(0 < value < math.inf for value in values):
        raise LoadError(f"{fields.source}: tensor {name} holds values that are not finite and above 0")
    return values


def _dtype(tensors: dict[str, GgufTensor]) -> str:
    """The one float type of all matrices, or "gguf" when they are blocks or mixed."""
    formats = {tensor.format for tensor in tensors.values() if len(tensor.shape) > 1}
    return _FLOAT_DTYPES.get(next(iter(formats)), "gguf") if len(formats) == 1 else "gguf"


def _eos_token_ids(general: Fields, vocab_size: int) -> tuple[int, ...]:
    """Ids named by the metadata, then control tokens whose text ends a turn in a known chat format."""
    ids: list[int] = []
    for key in ("eos_token_id", "eot_token_id", "eom_token_id"):
        ids += general.token_ids(f"tokenizer.ggml.{key}", vocab_size)
    tokens, types = general.values.get("tokenizer.ggml.tokens"), general.values.get("tokenizer.ggml.token_type")
    if isinstance(tokens, list) and isinstance(types, list):
        known = set(END_OF_TURN_TOKENS)
        ids += [
            index
            for index, (text, kind) in enumerate(zip(tokens, types, strict=False))
            if kind == _CONTROL_TOKEN and text in known and index < vocab_size
        ]
    return tuple(dict.fromkeys(ids))


def _sampling_advice(architecture: str, general: Fields) -> SamplingAdvice:
    """The file's own settings; those of the model's family where it has none."""
    advice: dict[str, float | int | None] = {
        name: general.advice(key, low, high) for key, (name, low, high) in _SAMPLING_KEYS.items()
    }
    advice["top_k"] = general.advice("general.sampling.top_k", -1, (1 << 31) - 1, whole=True)
    defaults = {name: value for name, value in advice.items() if value is not None}
    if defaults:
        return SamplingAdvice(defaults, "the file recommends")
    names = [general.values.get(f"general.{key}") for key in ("basename", "name", "finetune")]
    return advice_for_family(architecture, *(name for name in names if isinstance(name, str)))
