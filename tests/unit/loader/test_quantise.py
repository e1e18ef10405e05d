"""Rounding to int8, int4 and w8a8: equal to the gguf package in groups of 32, exact on a grid, small errors, and refusals."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from octavo.errors import LoadError
from octavo.loader.formats import evaluate, quantise
from octavo.loader.formats.block_format import F32

GROUPS = (32, 64, 128)


def plain(values: F32, kind: gguf.GGMLQuantizationType) -> F32:
    rounded: F32 = gguf.quants.dequantize(gguf.quants.quantize(values, kind), kind)
    return rounded


def test_int8_in_groups_of_32_is_q8_0() -> None:
    rng = np.random.default_rng(1)
    values = (rng.standard_normal((5, 96)) * 10.0 ** rng.integers(-6, 4, (5, 1))).astype(np.float32)
    values[1, :32] = 0.0
    values[2, :4] = [127.0, 0.5, -0.5, 2.5]
    values[2, 4:32] = 0.0
    assert np.array_equal(evaluate(quantise(values, "int8", 32)), plain(values, gguf.GGMLQuantizationType.Q8_0))


@pytest.mark.parametrize("group", GROUPS)
def test_int4_keeps_values_on_a_grid_of_sixteen_steps(group: int) -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 16, (50, 160))
    codes[:, ::32], codes[:, 1::32] = 0, 15
    values = (codes * 0.0625 - 0.5).astype(np.float32)
    assert np.array_equal(evaluate(quantise(values, "int4", group)), values)


def test_the_error_of_int4_is_a_fifth_below_that_of_minimum_and_maximum() -> None:
    values = np.random.default_rng(1).standard_normal((400, 128)).astype(np.float32)
    ours = evaluate(quantise(values, "int4", 32))
    by_extremes = plain(values, gguf.GGMLQuantizationType.Q4_1)
    assert ((ours - values) ** 2).sum() < 0.82 * ((by_extremes - values) ** 2).sum()


def test_smaller_groups_are_more_exact() -> None:
    values = np.random.default_rng(2).standard_normal((100, 576)).astype(np.float32)
    for kind in ("int8", "int4"):
        errors = [((evaluate(quantise(values, kind, group)) - values) ** 2).sum() for group in GROUPS]
        assert errors == sorted(errors)


def test_the_last_group_of_a_row_may_be_shorter() -> None:
    values = np.random.default_rng(3).standard_normal((4, 224)).astype(np.float32)
    for kind in ("int8", "int4"):
        blocks = quantise(values, kind, 128)
        assert blocks.scales.shape == (4, 2)
        alone = evaluate(quantise(values[:, 128:], kind, 128))
        assert np.array_equal(evaluate(blocks)[:, 128:], alone)


def test_w8a8_has_one_scale_per_row_and_errs_by_half_a_step_at_most() -> None:
    values = np.random.default_rng(4).standard_normal((20, 96)).astype(np.float32)
    blocks = quantise(values, "w8a8", 96)
    assert np.array_equal(blocks.scales, np.abs(values).max(axis=1, keepdims=True) / np.float32(127))
    assert np.all(np.abs(evaluate(blocks) - values) <= 0.501 * blocks.scales)
    assert blocks.codes.min() >= 1


@pytest.mark.parametrize("value", [0.0, 1.5, -3.0, 1e-9, 65504.0])
def test_constant_groups_are_kept_as_float16_holds_them(value: float) -> None:
    values = np.full((2, 32), value, np.float32)
    assert np.array_equal(evaluate(quantise(values, "int4", 32)), values.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize(
    ("kind", "bad"),
    [(kind, bad) for kind in ("int8", "int4", "w8a8") for bad in (np.nan, np.inf, -np.inf)]
    + [("int8", 1e30), ("int4", -70000.0), ("int4", 1e6), ("int4", 3e38)],
)
def test_values_it_cannot_hold_are_refused(kind: str, bad: float) -> None:
    values = np.ones((3, 64), np.float32)
    values[1, 40:] = bad
    with pytest.raises(LoadError, match=f"{kind} cannot hold"):
        quantise(values, kind, 64 if kind == "w8a8" else 32)


def test_columns_must_fill_pieces() -> None:
    with pytest.raises(LoadError, match="multiple of 32"):
        quantise(np.ones((2, 40), np.float32), "int4", 32)
