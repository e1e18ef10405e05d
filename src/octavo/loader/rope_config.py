"""RopeConfig from the two forms of Hugging Face configs: `rope_theta` with `rope_scaling`, and `rope_parameters`.

Defaults follow transformers' modeling_rope_utils (version 5).
"""

from __future__ import annotations

from typing import cast, get_args

from octavo.config.model import RopeConfig, RopeKind
from octavo.loader.fields import Fields

MAX_FACTOR = 1e6
_LAYER_TYPES = ("full_attention", "sliding_attention")
_OLD_NAMES = {"su": "longrope"}


def rope_from_fields(config: Fields, head_dim: int, max_position: int, default_theta: float = 10000.0) -> RopeConfig:
    """The one rope of a model whose layers all share it. Raises: LoadError naming file and key."""
    section = config.section("rope_parameters")
    if section is not None and any(section.has(layer_type) for layer_type in _LAYER_TYPES):
        section = section.section("full_attention") or section.section("sliding_attention")
    if section is None:
        section = config.section("rope_scaling")
    theta = config.number("rope_theta", default_theta, low_open=True)
    return _rope(section or Fields({}, config.source), config, head_dim, max_position, theta)


def gemma3_ropes_from_fields(config: Fields, head_dim: int, max_position: int) -> tuple[RopeConfig, RopeConfig]:
    """Ropes of Gemma 3's full and sliding layers; in the old form `rope_scaling` belongs to the full layers only."""
    nested = config.section("rope_parameters") or Fields({}, config.source)
    full = nested.section("full_attention") or config.section("rope_scaling") or Fields({}, config.source)
    sliding = nested.section("sliding_attention") or Fields({}, config.source)
    full_theta = config.number("rope_theta", 1_000_000.0, low_open=True)
    local_theta = config.number("rope_local_base_freq", 10_000.0, low_open=True)
    return (
        _rope(full, config, head_dim, max_position, full_theta),
        _rope(sliding, config, head_dim, max_position, local_theta),
    )


def _rope(section: Fields, config: Fields, head_dim: int, max_position: int, default_theta: float) -> RopeConfig:
    """One rope from its own section; `config` holds the keys that older checkpoints keep at the top."""
    kind = section.text("rope_type", section.text("type", "default"))
    kind = _OLD_NAMES.get(kind, kind)
    if kind not in get_args(RopeKind):
        raise section.error("rope_type", f"is {kind!r}; known: {', '.join(get_args(RopeKind))}")
    theta = section.number("rope_theta", default_theta, low_open=True)
    fraction = section.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0, high=1.0), high=1.0)
    rotary_dim = int(head_dim * fraction)
    if rotary_dim < 2 or rotary_dim % 2:
        raise section.error(
            "partial_rotary_factor", f"is {fraction}: {rotary_dim} of {head_dim} dimensions, expected an even number"
        )
    if kind == "default":
        return RopeConfig(theta=theta, rotary_dim=rotary_dim)
    original = _original_max_position(section, config, kind, max_position)
    if section.has("factor") or kind not in ("yarn", "longrope"):
        factor = section.number("factor", low=0.0, high=MAX_FACTOR, low_open=True)
    else:
        factor = max_position / original
    longrope = kind == "longrope"
    rope = RopeConfig(
        kind=cast(RopeKind, kind),
        theta=theta,
        rotary_dim=rotary_dim,
        factor=factor,
        low_freq_factor=section.number("low_freq_factor", 1.0, low_open=True, high=MAX_FACTOR),
        high_freq_factor=section.number("high_freq_factor", 4.0, low_open=True, high=MAX_FACTOR),
        original_max_position=original,
        beta_fast=section.number("beta_fast", 32.0, low_open=True, high=MAX_FACTOR),
        beta_slow=section.number("beta_slow", 1.0, low_open=True, high=MAX_FACTOR),
        mscale=section.optional_number("mscale", high=MAX_FACTOR),
        mscale_all_dim=section.optional_number("mscale_all_dim", high=MAX_FACTOR),
        attention_factor=section.optional_number("attention_factor", high=MAX_FACTOR, low_open=True),
        truncate=section.flag("truncate", True),
        short_factors=section.numbers("short_factor", rotary_dim // 2) if longrope else (),
        long_factors=section.numbers("long_factor", rotary_dim // 2) if longrope else (),
    )
    if kind == "llama3" and rope.low_freq_factor >= rope.high_freq_factor:
        raise section.error("high_freq_factor", f"is {rope.high_freq_factor}, not above low_freq_factor {rope.low_freq_factor}")
    return rope


def _original_max_position(section: Fields, config: Fields, kind: str, max_position: int) -> int:
    """The context length before scaling. Dynamic scaling starts from max_position, as transformers has it; a value beside the
    section (Phi-3 style) wins over the one inside."""
    if kind in ("dynamic", "linear"):
        return max_position
    inside = section.integer("original_max_position_embeddings", max_position)
    return config.integer("original_max_position_embeddings", inside)
