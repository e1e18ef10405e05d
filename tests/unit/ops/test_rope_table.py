"""Frequencies of every rope scaling against plain formulas in float64, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from octavo.config.model import RopeConfig
from octavo.errors import LoadError
from octavo.ops.rope_table import inverse_frequencies, rope_table

PLAIN = 10000.0 ** -(np.arange(0, 64, 2) / 64)


def frequencies(max_position: int = 4096, **fields: Any) -> tuple[np.ndarray, float]:
    return inverse_frequencies(RopeConfig(rotary_dim=64, **fields), max_position)


def test_default_frequencies_fall_geometrically() -> None:
    found, factor = frequencies()
    assert found == pytest.approx(PLAIN, rel=2e-7)
    assert found.dtype == np.float32
    assert factor == 1


def test_linear_divides_all_frequencies() -> None:
    assert frequencies(kind="linear", factor=4.0)[0] == pytest.approx(PLAIN / 4, rel=2e-7)


def test_dynamic_is_default_up_to_the_original_length_and_stretches_the_base_beyond() -> None:
    dynamic: dict[str, Any] = {"kind": "dynamic", "factor": 4.0, "original_max_position": 1024}
    assert np.array_equal(frequencies(1024, **dynamic)[0], frequencies()[0])
    assert np.array_equal(frequencies(100, **dynamic)[0], frequencies()[0])
    base = 10000.0 * (4.0 * 2048 / 1024 - 3.0) ** (64 / 62)
    assert frequencies(2048, **dynamic)[0] == pytest.approx(base ** -(np.arange(0, 64, 2) / 64), rel=3e-7)


def test_llama3_keeps_short_waves_and_divides_long_ones() -> None:
    found, _ = frequencies(kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=512)
    waves = 2 * math.pi / PLAIN
    ratio = found / PLAIN
    assert ratio[waves < 512 / 4] == pytest.approx(1, rel=2e-7)
    assert ratio[waves > 512] == pytest.approx(1 / 8, rel=2e-7)
    between = ratio[(waves >= 512 / 4) & (waves <= 512)]
    assert between.size > 0
    assert ((between > 1 / 8) & (between < 1)).all()


def test_yarn_keeps_fast_dimensions_and_interpolates_slow_ones() -> None:
    found, factor = frequencies(kind="yarn", factor=16.0, original_max_position=256)
    ratio = found / PLAIN
    assert ratio[0] == pytest.approx(1)
    assert ratio[-1] == pytest.approx(1 / 16, rel=1e-6)
    assert (np.diff(ratio) <= 1e-6).all()
    assert factor == pytest.approx(0.1 * math.log(16) + 1)


def test_yarn_attention_factor_follows_mscale_unless_it_is_given() -> None:
    yarn: dict[str, Any] = {"kind": "yarn", "factor": 16.0, "original_max_position": 256, "mscale": 1.0, "mscale_all_dim": 0.5}
    expected = (0.1 * math.log(16) + 1) / (0.05 * math.log(16) + 1)
    assert frequencies(**yarn)[1] == pytest.approx(expected)
    assert frequencies(**yarn, attention_factor=1.25)[1] == 1.25


def test_longrope_takes_short_factors_up_to_the_original_length_and_long_ones_beyond() -> None:
    factors = {"short_factors": (1.0,) * 32, "long_factors": (4.0,) * 32}
    longrope: dict[str, Any] = {"kind": "longrope", "factor": 4.0, "original_max_position": 1024, **factors}
    assert frequencies(1024, **longrope)[0] == pytest.approx(PLAIN, rel=2e-7)
    assert frequencies(1025, **longrope)[0] == pytest.approx(PLAIN / 4, rel=2e-7)
    assert frequencies(1024, **longrope)[1] == pytest.approx(math.sqrt(1 + math.log(4) / math.log(1024)))


def test_a_longrope_table_beyond_the_original_length_has_a_short_and_a_long_half() -> None:
    longrope = RopeConfig(
        kind="longrope",
        rotary_dim=64,
        factor=4.0,
        original_max_position=1024,
        short_factors=(1.0,) * 32,
        long_factors=(4.0,) * 32,
    )
    assert longrope.longest_short_prompt(1024) is None and longrope.longest_short_prompt(2000) == 1024
    within, beyond = rope_table(longrope, 1024), rope_table(longrope, 4000)
    for short, both in zip(within, beyond, strict=True):
        assert both.shape == (4000, 32)
        assert np.array_equal(both[:1024], short)
        assert both[2004 : 2004 + 400 : 4] == pytest.approx(both[1:101], abs=1e-5)  # long position 4 p is short position p


def test_gguf_frequency_divisors_divide() -> None:
    divisors = tuple(1.0 + index for index in range(32))
    assert frequencies(frequency_divisors=divisors)[0] == pytest.approx(PLAIN / np.array(divisors), rel=3e-7)


def test_the_table_holds_cosines_and_sines_times_the_attention_factor() -> None:
    rope = RopeConfig(kind="yarn", rotary_dim=8, factor=2.0, original_max_position=64, attention_factor=1.5)
    cosines, sines = rope_table(rope, 5000)
    angles = np.arange(5000, dtype=np.float32)[:, None] * inverse_frequencies(rope, 5000)[0]
    assert cosines == pytest.approx(1.5 * np.cos(angles.astype(np.float64)), abs=2e-7)
    assert sines == pytest.approx(1.5 * np.sin(angles.astype(np.float64)), abs=2e-7)


def test_a_temperature_makes_the_table_grow_in_steps_of_the_context_before_scaling() -> None:
    rope = RopeConfig(kind="yarn", rotary_dim=8, factor=2.0, original_max_position=64)
    plain, grown = rope_table(rope, 5000)[0], rope_table(replace(rope, temperature=0.3), 5000)[0]
    assert np.array_equal(plain[:64], grown[:64])
    for position in (64, 127, 128, 4999):
        step = 1 + 0.3 * math.log(1 + position // 64)
        assert grown[position] == pytest.approx(plain[position] * step, rel=3e-7)
    with pytest.raises(LoadError, match="original_max_position_embeddings"):
        rope_table(RopeConfig(rotary_dim=8, temperature=0.3), 64)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "yarn", "factor": 2.0}, "original_max_position_embeddings"),
        ({"kind": "longrope", "original_max_position": 64, "short_factors": (1.0,)}, "short_factor|long_factor"),
        ({"kind": "llama3", "original_max_position": 64, "low_freq_factor": 4.0}, "low_freq_factor < high_freq_factor"),
        ({"frequency_divisors": (1.0, 2.0)}, "frequency_divisors has 2 entries"),
    ],
)
def test_incomplete_scalings_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(LoadError, match=message):
        frequencies(**fields)


@pytest.mark.parametrize("rotary_dim", [0, 7, -2])
def test_an_odd_rotary_dim_is_refused(rotary_dim: int) -> None:
    with pytest.raises(LoadError, match="rotary_dim"):
        inverse_frequencies(RopeConfig(rotary_dim=rotary_dim), 16)
