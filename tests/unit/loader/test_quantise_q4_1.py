"""The int4 rounding: layout, exactness on a grid, error below the plain one, and refusals."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from octavo.errors import LoadError
from octavo.loader.formats import dequantise, quantise_q4_1


def test_values_on_a_grid_of_sixteen_steps_are_kept_exactly() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 16, (50, 64))
    codes[:, ::32], codes[:, 1::32] = 0, 15
    values = (codes * 0.0625 - 0.5).astype(np.float32)
    assert np.array_equal(dequantise("q4_1", quantise_q4_1(values), 64), values)


def test_the_bytes_are_q4_1_and_the_error_is_a_fifth_below_that_of_minimum_and_maximum() -> None:
    values = np.random.default_rng(1).standard_normal((400, 128)).astype(np.float32)
    data = quantise_q4_1(values)
    ours = dequantise("q4_1", data, 128)
    assert np.array_equal(gguf.quants.dequantize(data, gguf.GGMLQuantizationType.Q4_1), ours)
    plain = dequantise("q4_1", gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q4_1), 128)
    assert ((ours - values) ** 2).sum() < 0.82 * ((plain - values) ** 2).sum()


@pytest.mark.parametrize("value", [0.0, 1.5, -3.0, 1e-9, 65504.0])
def test_constant_groups_are_kept_as_float16_holds_them(value: float) -> None:
    values = np.full((2, 32), value, np.float32)
    assert np.array_equal(dequantise("q4_1", quantise_q4_1(values), 32), values.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -70000.0, 1e6, 3e38])
def test_values_it_cannot_hold_are_refused(bad: float) -> None:
    values = np.ones((3, 64), np.float32)
    values[1, 40:] = bad
    with pytest.raises(LoadError, match="q4_1 cannot hold"):
        quantise_q4_1(values)


def test_columns_must_fill_groups() -> None:
    with pytest.raises(LoadError, match="multiple of 32"):
        quantise_q4_1(np.ones((2, 40), np.float32))
