"""Rotary tables: inverse frequencies of every rope scaling, and their cosines and sines by position.

Numbers follow transformers' modeling_rope_utils in float32: frequencies are float32, the angle is the float32 product of
position and frequency. Powers, cosines and sines are computed in float64 and rounded once, which is what any library within
one unit in the last place agrees with.
Sources: Su et al., 2021 (rope); Peng et al., 2023 (YaRN); Ding et al., 2024 (LongRoPE); Llama 3.1 model card.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from octavo.config.model import RopeConfig
from octavo.errors import LoadError

F32: TypeAlias = NDArray[np.float32]
Table = TypeVar("Table")

_ROWS_AT_A_TIME = 4096
"""Positions per float64 temporary: 4096 x 64 doubles are 2 MB, small enough for the cache."""


class RopeTables(Generic[Table]):
    """The tables that a backend's programs use, in its own form; equal configurations share one.

    make   from the cosines and sines of `rope_table`
    """

    def __init__(self, make: Callable[[F32, F32], Table]) -> None:
        self._make = make
        self._tables: dict[tuple[RopeConfig, int], Table] = {}

    def table(self, rope: RopeConfig, max_position: int) -> Table:
        """For positions 0..max_position-1. Raises: as rope_table."""
        key = (rope, max_position)
        if key not in self._tables:
            self._tables[key] = self._make(*rope_table(rope, max_position))
        return self._tables[key]


def rope_table(rope: RopeConfig, max_position: int) -> tuple[F32, F32]:
    """Cosines and sines, float32 [max_position, rotary_dim / 2] each, already times the attention factor.

    Scalings that depend on the sequence length are fixed by max_position, so that a result never depends on the length reached:
    dynamic equals default up to original_max_position and stretches the base to max_position beyond.

    longrope beyond original_max_position has two halves of max_position / 2 rows, each for the positions from 0 on: the short
    factors, then the long ones. Which half a sequence reads is the caller's choice (RopeConfig.longest_short_prompt).
    Raises: LoadError if a field that the scaling needs is missing or has the wrong length.
    """
    if rope.longest_short_prompt(max_position) is not None:
        half, original = max_position // 2, _original(rope)
        halves = [_table(rope, *inverse_frequencies(rope, length), half) for length in (original, original + 1)]
        return np.concatenate([halves[0][0], halves[1][0]]), np.concatenate([halves[0][1], halves[1][1]])
    return _table(rope, *inverse_frequencies(rope, max_position), max_position)


def _table(rope: RopeConfig, frequencies: F32, attention_factor: float, max_position: int) -> tuple[F32, F32]:
    """Cosines and sines of positions 0..max_position-1."""
    cosines = np.empty((max_position, frequencies.size), np.float32)
    sines = np.empty_like(cosines)
    factor: np.float32 | F32 = np.float32(attention_factor)
    for first in range(0, max_position, _ROWS_AT_A_TIME):
        positions = np.arange(first, min(first + _ROWS_AT_A_TIME, max_position), dtype=np.float32)
        angles = (positions[:, None] * frequencies).astype(np.float64)
        if rope.temperature:
            steps = 1 + rope.temperature * np.log1p(positions.astype(np.float64) // _original(rope))
            factor = (np.float32(attention_factor) * steps.astype(np.float32))[:, None]
        cosines[first : first + positions.size] = np.cos(angles).astype(np.float32) * factor
        sines[first : first + positions.size] = np.sin(angles).astype(np.float32) * factor
    return cosines, sines


def inverse_frequencies(rope: RopeConfig, max_position: int) -> tuple[F32, float]:
    """Inverse frequencies float32 [rotary_dim / 2] and the factor on cosines and sines. Raises: as rope_table."""
    if rope.rotary_dim <= 0 or rope.rotary_dim % 2:
        raise LoadError(f"rope: rotary_dim is {rope.rotary_dim}; it must be a positive even number")
    attention_factor = 1.0
    if rope.kind == "default":
        frequencies = _plain(rope.theta, rope.rotary_dim)
    elif rope.kind == "linear":
        frequencies = _plain(rope.theta, rope.rotary_dim) / np.float32(rope.factor)
    elif rope.kind == "dynamic":
        frequencies = _dynamic(rope, max_position)
    elif rope.kind == "llama3":
        frequencies = _llama3(rope)
    elif rope.kind == "yarn":
        frequencies, attention_factor = _yarn(rope)
    else:
        frequencies, attention_factor = _longrope(rope, max_position)
    if rope.frequency_divisors is not None:
        frequencies = frequencies / _factors(rope, rope.frequency_divisors, "frequency_divisors")
    if not np.isfinite(frequencies).all():
        raise LoadError(f"rope: scaling {rope.kind} with theta {rope.theta} and factor {rope.factor} is out of range")
    return frequencies, attention_factor


def _powers(theta: float, rotary_dim: int) -> F32:
    """theta ** (2 i / rotary_dim), the exponent rounded to float32 as transformers rounds it."""
    exponents = np.arange(0, rotary_dim, 2, dtype=np.float32) / np.float32(rotary_dim)
    powers: F32 = np.power(np.float64(np.float32(theta)), exponents.astype(np.float64)).astype(np.float32)
    return powers


def _plain(theta: float, rotary_dim: int) -> F32:
    frequencies: F32 = np.float32(1.0) / _powers(theta, rotary_dim)
    return frequencies


def _dynamic(rope: RopeConfig, max_position: int) -> F32:
    """NTK-aware scaling: the base grows with the length, here with max_position."""
    original = _original(rope) if rope.original_max_position is not None else max_position
    length = max(max_position, original)
    stretch = rope.factor * length / original - (rope.factor - 1.0)
    if rope.rotary_dim <= 2:
        raise LoadError(f"rope: dynamic scaling needs a rotary_dim above 2, not {rope.rotary_dim}")
    return _plain(rope.theta * stretch ** (rope.rotary_dim / (rope.rotary_dim - 2)), rope.rotary_dim)


def _llama3(rope: RopeConfig) -> F32:
    """Low frequencies are divided by factor, high ones stay, those between are blended."""
    original = _original(rope)
    if rope.high_freq_factor <= rope.low_freq_factor or rope.low_freq_factor <= 0:
        raise LoadError(
            f"rope: llama3 needs 0 < low_freq_factor < high_freq_factor, got {rope.low_freq_factor} and {rope.high_freq_factor}"
        )
    plain = _plain(rope.theta, rope.rotary_dim)
    wavelengths = np.float32(2 * math.pi) / plain
    long_wave, short_wave = original / rope.low_freq_factor, original / rope.high_freq_factor
    scaled = np.where(wavelengths > long_wave, plain / np.float32(rope.factor), plain)
    smooth = (original / wavelengths - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blended = (1 - smooth) * scaled / rope.factor + smooth * scaled
    between = (wavelengths >= short_wave) & (wavelengths <= long_wave)
    return np.where(between, blended, scaled).astype(np.float32)


def _yarn(rope: RopeConfig) -> tuple[F32, float]:
    """Interpolate slow dimensions, keep fast ones, ramp between the two (YaRN, section 3.2)."""
    original, dim = _original(rope), rope.rotary_dim
    powers = _powers(rope.theta, dim)
    kept = np.float32(1.0) / powers
    interpolated = np.float32(1.0) / (np.float32(rope.factor) * powers)
    low, high = (
        dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(rope.theta))
        for rotations in (rope.beta_fast, rope.beta_slow)
    )
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001  # as transformers does, so that the ramp's slope stays finite
    ramp = np.clip((np.arange(dim // 2, dtype=np.float32) - np.float32(low)) / np.float32(high - low), 0, 1)
    keep = (1 - ramp).astype(np.float32)
    return interpolated * (1 - keep) + kept * keep, _yarn_attention_factor(rope)


def _yarn_attention_factor(rope: RopeConfig) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor

    def magnitude(mscale: float) -> float:
        return 1.0 if rope.factor <= 1 else 0.1 * mscale * math.log(rope.factor) + 1.0

    if rope.mscale and rope.mscale_all_dim:
        return magnitude(rope.mscale) / magnitude(rope.mscale_all_dim)
    return magnitude(1.0)


def _longrope(rope: RopeConfig, max_position: int) -> tuple[F32, float]:
    """Each dimension has a factor of its own: one set for short contexts, one for long."""
    original = _original(rope)
    is_long = max_position > original
    factors = _factors(rope, *((rope.long_factors, "long_factor") if is_long else (rope.short_factors, "short_factor")))
    attention_factor = rope.attention_factor
    if attention_factor is None:
        attention_factor = 1.0 if rope.factor <= 1 else math.sqrt(1 + math.log(rope.factor) / math.log(original))
    return np.float32(1.0) / (factors * _powers(rope.theta, rope.rotary_dim)), attention_factor


def _original(rope: RopeConfig) -> int:
    if not rope.original_max_position or rope.original_max_position < 2:
        raise LoadError(f"rope: scaling {rope.kind} needs original_max_position_embeddings of at least 2")
    return rope.original_max_position


def _factors(rope: RopeConfig, values: tuple[float, ...], field: str) -> F32:
    if len(values) != rope.rotary_dim // 2:
        raise LoadError(f"rope: {field} has {len(values)} entries; rotary_dim {rope.rotary_dim} needs {rope.rotary_dim // 2}")
    return np.asarray(values, np.float32)
