"""What GGUF files of an architecture leave implicit or say in keys of their own, as llama.cpp reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from octavo.config.model import LayerKind, ModelConfig, RopeConfig
from octavo.loader.fields import Fields, shown
from octavo.loader.hf_common import MAX_MULTIPLIER, MAX_WINDOW, MIN_MULTIPLIER

_SMOLLM3_ROTATION_STEP = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFamily:
    """architecture     Hugging Face class
    windowed         the class of files that have a window, where it is another one
    full_every       with a window, every full_every-th layer sees the whole context, unless the file lists them; 0: all slide;
                     None: there is no window, whatever the file says
    default_window   where the file has none; None: then no layer slides
    has_pairs        heads of q and k are stored in pairs, which needs a rope of whole heads
    is_gemma         scaled embeddings, a gated GELU
    wide_layers      Gemma: so many layers tell the size that scales scores by hidden_size / heads instead of the head size
    default_theta    base of the rope
    attn_softcap, final_softcap   where the file has none
    experts          the class of files with a mixture of experts; None: there are none
    renormalises     the weights of a token's experts sum to 1
    """

    architecture: str
    windowed: str | None = None
    full_every: int | None = None
    default_window: int | None = None
    has_pairs: bool = False
    is_gemma: bool = False
    wide_layers: int = 0
    default_theta: float = 10_000.0
    attn_softcap: float | None = None
    final_softcap: float | None = None
    experts: str | None = None
    renormalises: bool = False

    def window(self, fields: Fields) -> int | None:
        """Sliding window in tokens; None: no layer slides."""
        if self.full_every is None:
            return None
        if not fields.has("attention.sliding_window"):
            return self.default_window
        return fields.optional_integer("attention.sliding_window", low=0, high=MAX_WINDOW) or None

    def layer_kinds(self, fields: Fields, window: int | None, num_layers: int) -> tuple[LayerKind, ...]:
        """One kind for each layer."""
        if window is None or self.full_every is None:
            return _kinds([False] * num_layers)
        if self.full_every == 0:
            return _kinds([True] * num_layers)
        listed = fields.values.get(fields.prefix + "attention.sliding_window_pattern")
        if isinstance(listed, list):  # one flag per layer: true slides
            if len(listed) != num_layers:
                raise fields.error("attention.sliding_window_pattern", f"lists {len(listed)} flags for {num_layers} layers")
            return _kinds(listed)
        every = fields.integer("attention.sliding_window_pattern", self.full_every)
        return _kinds((layer + 1) % every != 0 for layer in range(num_layers))


def _kinds(slides: Iterable[object]) -> tuple[LayerKind, ...]:
    return tuple("sliding" if flag else "full" for flag in slides)


FAMILIES: dict[str, GgufFamily] = {
    # Mistral models are stored as "llama"; a sliding window key tells them apart.
    "llama": GgufFamily(
        architecture="LlamaForCausalLM",
        windowed="MistralForCausalLM",
        full_every=0,
        has_pairs=True,
        experts="MixtralForCausalLM",
        renormalises=True,
    ),
    "qwen2": GgufFamily(architecture="Qwen2ForCausalLM"),
    "qwen3": GgufFamily(architecture="Qwen3ForCausalLM"),
    "gemma2": GgufFamily(
        architecture="Gemma2ForCausalLM",
        full_every=2,
        default_window=4096,
        is_gemma=True,
        wide_layers=46,
        attn_softcap=50.0,
        final_softcap=30.0,
    ),
    "gemma3": GgufFamily(
        architecture="Gemma3ForCausalLM", full_every=6, is_gemma=True, wide_layers=62, default_theta=1_000_000.0
    ),
    # llama.cpp leaves Phi-3's window out, and says that results may suffer. octavo slides, as transformers does.
    "phi3": GgufFamily(architecture="Phi3ForCausalLM", full_every=0),
    "smollm3": GgufFamily(architecture="SmolLM3ForCausalLM", has_pairs=True),
    "olmo2": GgufFamily(architecture="Olmo2ForCausalLM", windowed="Olmo3ForCausalLM", full_every=4),
    "granite": GgufFamily(architecture="GraniteForCausalLM", has_pairs=True),
    "glm4": GgufFamily(architecture="Glm4ForCausalLM"),
    "mistral3": GgufFamily(architecture="Ministral3ForCausalLM", has_pairs=True),
    "exaone4": GgufFamily(architecture="Exaone4ForCausalLM", full_every=4),
    "seed_oss": GgufFamily(architecture="SeedOssForCausalLM"),
    "qwen2moe": GgufFamily(architecture="Qwen2MoeForCausalLM", experts="Qwen2MoeForCausalLM"),
    "qwen3moe": GgufFamily(architecture="Qwen3MoeForCausalLM", experts="Qwen3MoeForCausalLM", renormalises=True),
    "olmoe": GgufFamily(architecture="OlmoeForCausalLM", experts="OlmoeForCausalLM"),
    "granitemoe": GgufFamily(
        architecture="GraniteMoeForCausalLM", has_pairs=True, experts="GraniteMoeForCausalLM", renormalises=True
    ),
    "bert": GgufFamily(architecture="BertModel"),
}
"""GGUF architecture -> its family."""


def with_own_keys(name: str, fields: Fields, config: ModelConfig) -> ModelConfig:
    """config with what an architecture alone has. Raises: LoadError naming file and key."""
    return _OWN_KEYS[name](fields, config) if name in _OWN_KEYS else config


def _gemma3(fields: Fields, config: ModelConfig) -> ModelConfig:
    """Sliding layers: base 10,000 and never scaled."""
    if not fields.optional_integer("attention.sliding_window", low=0, high=MAX_WINDOW):
        raise fields.error("attention.sliding_window", "is missing or 0")
    return _unscaled_local_rope(fields, config, 10_000.0)


def _smollm3(fields: Fields, config: ModelConfig) -> ModelConfig:
    return replace(config, rotated=tuple((layer + 1) % _SMOLLM3_ROTATION_STEP != 0 for layer in range(config.num_layers)))


def _olmo2(fields: Fields, config: ModelConfig) -> ModelConfig:
    """OLMo 3's sliding layers are never scaled."""
    return config if config.sliding_window is None else _unscaled_local_rope(fields, config, config.rope.theta)


def _granite(fields: Fields, config: ModelConfig) -> ModelConfig:
    """Multipliers; one that is 0 or absent is none. Granite 4 without rotation has its rope marked as not trained."""

    def multiplier(key: str, default: float) -> float:
        is_off = fields.has(key) and fields.value(key) == 0
        return default if is_off else fields.number(key, default, low=MIN_MULTIPLIER, high=MAX_MULTIPLIER)

    is_rotated = fields.flag("rope.scaling.finetuned", True)
    return replace(
        config,
        embedding_scale=multiplier("embedding_scale", 1.0),
        query_scale=multiplier("attention.scale", config.query_scale),
        residual_multiplier=multiplier("residual_scale", 1.0),
        logits_scaling=multiplier("logit_scale", 1.0),
        rotated=() if is_rotated else (False,) * config.num_layers,
    )


def _glm4(fields: Fields, config: ModelConfig) -> ModelConfig:
    sections = fields.values.get(fields.prefix + "rope.dimension_sections")
    if isinstance(sections, list) and any(sections):
        raise fields.error("rope.dimension_sections", f"is {shown(sections)}; positions of images are not supported")
    return _without_prediction_layers(fields, config)


def _mistral3(fields: Fields, config: ModelConfig) -> ModelConfig:
    """Ministral 3: YaRN without a factor of its own, queries that grow with the position."""
    rope = config.rope
    log_multiplier = fields.number("rope.scaling.yarn_log_multiplier", 0.0, high=MAX_MULTIPLIER)
    if rope.kind == "yarn" and log_multiplier:
        rope = replace(rope, mscale=1.0, mscale_all_dim=log_multiplier)
    beta = fields.number("attention.temperature_scale", 0.0, high=1e3)
    if not beta:
        return replace(config, rope=rope)
    if rope.original_max_position is None:
        raise fields.error("attention.temperature_scale", "needs rope.scaling.type yarn with original_context_length")
    return replace(config, rope=rope, query_rope=replace(rope, temperature=beta))


def _exaone4(fields: Fields, config: ModelConfig) -> ModelConfig:
    """With a window, layers that see the whole context are not rotated."""
    config = _without_prediction_layers(fields, config)
    if config.sliding_window is None:
        return config
    return replace(_local_base(fields, config), rotated=tuple(kind == "sliding" for kind in config.layer_kinds))


def _unscaled_local_rope(fields: Fields, config: ModelConfig, default_theta: float) -> ModelConfig:
    theta = fields.number("rope.freq_base_swa", default_theta, low_open=True)
    return replace(config, local_rope=RopeConfig(theta=theta, rotary_dim=config.head_dim))


def _local_base(fields: Fields, config: ModelConfig) -> ModelConfig:
    """Sliding layers have a base of their own where the file says so."""
    theta = fields.optional_number("rope.freq_base_swa", low_open=True)
    return config if theta is None else replace(config, local_rope=replace(config.rope, theta=theta))


def _without_prediction_layers(fields: Fields, config: ModelConfig) -> ModelConfig:
    if fields.integer("nextn_predict_layers", 0, low=0):
        raise fields.error("nextn_predict_layers", "is not 0; layers that predict further tokens are not supported")
    return config


_OWN_KEYS: dict[str, Callable[[Fields, ModelConfig], ModelConfig]] = {
    "gemma2": _local_base,
    "gemma3": _gemma3,
    "smollm3": _smollm3,
    "olmo2": _olmo2,
    "granite": _granite,
    "granitemoe": _granite,
    "glm4": _glm4,
    "mistral3": _mistral3,
    "exaone4": _exaone4,
}
