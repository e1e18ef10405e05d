"""RopeConfig from the two forms of Hugging Face configs: `rope_theta` with `rope_scaling`, and `rope_parameters`.

Defaults follow transformers' modeling_rope_utils (version 5), and so does what happens when a file has both forms: a
`rope_scaling` that is not empty replaces `rope_parameters` as a whole, its base included. Gemma 3 and OLMo 3 merge the two.
"""

from __future__ import annotations

from typing import cast, get_args

from octavo.config.model import RopeConfig, RopeKind
from octavo.loader.fields import Fields, shown

MAX_FACTOR = 1e6
_LAYER_TYPES = ("full_attention", "sliding_attention")
_OLD_NAMES = {"su": "longrope"}


def rope_from_fields(config: Fields, head_dim: int, max_position: int, default_theta: float = 10000.0) -> RopeConfig:
    """The one rope of a model whose layers all share it. Raises: LoadError naming file and key."""
    theta = config.number("rope_theta", default_theta, low_open=True)
    section = config.section("rope_scaling")
    replaced = config.section("rope_parameters")
    if section is None or not section.values:
        section = replaced
    elif replaced is not None and replaced.values:
        _warn_of_replaced(section, replaced, config, theta)
    if section is not None and any(section.has(layer_type) for layer_type in _LAYER_TYPES):
        section = section.section("full_attention") or section.section("sliding_attention")
    return _rope(section or Fields({}, config.source), config, head_dim, max_position, theta)


def extended_context(rope: RopeConfig, max_position: int) -> int:
    """The context in tokens that linear scaling and YaRN give a model of max_position (YaRN: of original_max_position).

    Model cards tell users to add the scaling and to leave max_position_embeddings alone; vLLM reads it so too. longrope and
    llama3 have it multiplied in already; dynamic starts from max_position and changes short prompts when it is stretched.
    """
    if rope.kind == "yarn":
        return max(max_position, int((rope.original_max_position or max_position) * rope.factor))
    return int(max_position * max(rope.factor, 1.0)) if rope.kind == "linear" else max_position


def ropes_by_layer_kind(
    config: Fields, head_dim: int, max_position: int, default_theta: float, default_local_theta: float
) -> tuple[RopeConfig, RopeConfig]:
    """Ropes of full and of sliding layers (Gemma 3, OLMo 3); `rope_scaling` belongs to the full layers only, over what they
    have. `rope_theta` is that of the full layers, as in transformers."""
    nested = config.section("rope_parameters") or Fields({}, config.source)
    full = nested.section("full_attention") or Fields({}, config.source)
    scaling = config.section("rope_scaling")
    if scaling is not None:
        full = Fields({**full.values, **scaling.values}, scaling.source, quiet=config.quiet)
    sliding = nested.section("sliding_attention") or Fields({}, config.source)
    full_theta = config.number("rope_theta", default_theta, low_open=True)
    local_theta = config.number("rope_local_base_freq", default_local_theta, low_open=True)
    ropes = (
        _rope(full, config, head_dim, max_position, full_theta),
        _rope(sliding, config, head_dim, max_position, local_theta),
    )
    if "longrope" in (ropes[0].kind, ropes[1].kind):
        raise config.error("rope_parameters", "asks for longrope in some layers, which octavo can only do for all of a model")
    return ropes


def _rope(section: Fields, config: Fields, head_dim: int, max_position: int, default_theta: float) -> RopeConfig:
    """One rope from its own section; `config` holds the keys that older checkpoints keep at the top."""
    kind = section.text("rope_type", section.text("type", "default"))
    kind = _OLD_NAMES.get(kind, kind)
    if kind not in get_args(RopeKind):
        raise section.error("rope_type", f"is {shown(kind)}; known: {', '.join(get_args(RopeKind))}")
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


def _warn_of_replaced(section: Fields, replaced: Fields, config: Fields, theta: float) -> None:
    if any(replaced.values.get(key) != value for key, value in section.values.items()):
        config.warn("rope_scaling", "is used, and rope_parameters is not, as in transformers; remove one of them")
    lost = replaced.values.get("rope_theta")
    if lost is not None and not section.has("rope_theta") and lost != theta:
        config.warn(
            "rope_scaling",
            f"names no rope_theta, so {theta:g} is used and not the {shown(lost)} of rope_parameters, as in transformers; "
            f"write rope_theta into rope_scaling",
        )


def _original_max_position(section: Fields, config: Fields, kind: str, max_position: int) -> int:
    """The context length before scaling. Dynamic scaling starts from max_position, as transformers has it; a value beside the
    section (Phi-3 style) wins over the one inside."""
    if kind in ("dynamic", "linear"):
        return max_position
    inside = section.integer("original_max_position_embeddings", max_position)
    return config.integer("original_max_position_embeddings", inside)
