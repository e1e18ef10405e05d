"""Weights rounded at load by the native packer: bit for bit those of the numpy twins, from every source format."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.ops.harness import block_tensor, cpu, float_tensor, run, step

from octavo.errors import LoadError
from octavo.loader.formats import evaluate, floats, quantise
from octavo.loader.stored import StoredRows, StoredTensor
from octavo.ops.arrays import F32

KINDS = ("int8", "int4", "w8a8")


def held(tensor: StoredTensor, quantization: str, dtype: str = "float32", threads: int = 2, group_size: int = 32) -> F32:
    """The values that the backend holds for a matrix, read back through the embedding op."""
    rows = tensor.shape[0]
    backend = cpu(threads=threads, dtype=dtype, quantization=quantization, group_size=group_size)
    table = backend.parameters.load_linear([tensor], [None])
    return run(backend, lambda ops: ops.embedding(table), step([1] * rows, tables=np.zeros((rows, 1), np.int32)))


def twin(values: F32, quantization: str, group_size: int = 32) -> F32:
    return evaluate(quantise(values, quantization, values.shape[1] if quantization == "w8a8" else group_size))


def awkward_values() -> F32:
    """Normal rows of several magnitudes, zeros, constants, ties, grids, tiny and lopsided groups."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((43, 96)).astype(np.float32)
    values *= rng.choice([1e-7, 1e-4, 1, 1e3], (43, 1)).astype(np.float32)
    values[3], values[4], values[5, :32] = 0, 1.5, 0
    values[6] = np.arange(96) - 31.75
    values[7] *= np.float32(1e-30)
    values[8] = np.round(rng.uniform(0, 15, 96)) * 0.25 - 1
    values[9] = np.abs(values[9]) + 100
    values[10, 50] = 60000
    return values


@pytest.mark.parametrize("quantization", KINDS)
@pytest.mark.parametrize("threads", [1, 3])
def test_float_weights_are_rounded_as_the_numpy_twin_rounds_them(quantization: str, threads: int) -> None:
    values = awkward_values()
    assert np.array_equal(held(float_tensor(values), quantization, "auto", threads), twin(values, quantization))


@pytest.mark.parametrize("quantization", ["int8", "int4"])
@pytest.mark.parametrize("group_size", [64, 128])
@pytest.mark.parametrize("columns", [32, 96, 128, 160, 224, 576])
def test_larger_groups_and_shorter_last_ones_are_those_of_the_twin(quantization: str, group_size: int, columns: int) -> None:
    values = np.tile(awkward_values(), (1, 6))[:, :columns]
    result = held(float_tensor(values), quantization, group_size=group_size)
    assert np.array_equal(result, twin(values, quantization, group_size))


@pytest.mark.parametrize("quantization", KINDS)
@pytest.mark.parametrize("format", ["q8_0", "q4_0", "q4_1", "q5_1", "q2_k", "q4_k", "q6_k"])
def test_blocks_are_widened_exactly_and_then_rounded(quantization: str, format: str) -> None:
    tensor = block_tensor(np.random.default_rng(2), format, 19, 256)
    order = np.random.default_rng(3).permutation(19).astype(np.int32)
    values = tensor.to_float32()
    assert np.array_equal(held(replace(tensor, row_order=order), quantization), twin(values[order], quantization))


@pytest.mark.parametrize("quantization", KINDS)
@pytest.mark.parametrize(("dtype", "format"), [("float16", "f16"), ("bfloat16", "bf16")])
def test_an_explicit_dtype_rounds_before_the_codes_do(quantization: str, dtype: str, format: str) -> None:
    values = np.random.default_rng(4).standard_normal((20, 64)).astype(np.float32)
    rounded = floats.dequantise(format, floats.encode(format, values))
    assert np.array_equal(held(float_tensor(values), quantization, dtype), twin(rounded, quantization))
    stored = StoredRows("weight", values.shape, format, floats.encode(format, values), None, "memory: weight")
    assert np.array_equal(held(stored, quantization, "auto"), twin(rounded, quantization))


@pytest.mark.parametrize("quantization", KINDS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused_by_name(quantization: str, bad: float) -> None:
    values = np.ones((20, 64), np.float32)
    values[17, 33] = bad
    with pytest.raises(LoadError, match="memory: weight: NaN or infinite value at row 17, column 33"):
        held(float_tensor(values), quantization)


@pytest.mark.parametrize(("quantization", "large"), [("int8", 1e7), ("int4", 1e6), ("int4", -70000.0), ("int4", -3e38)])
def test_values_beyond_the_codes_are_refused_by_name(quantization: str, large: float) -> None:
    values = np.ones((20, 64), np.float32)
    values[3, 5] = large
    with pytest.raises(LoadError, match="memory: weight: weight has a value beyond the range"):
        held(float_tensor(values), quantization)


def test_float_panels_hold_every_value_for_odd_sizes() -> None:
    values = np.random.default_rng(5).standard_normal((37, 23)).astype(np.float32)
    for dtype, format in (("float32", "f32"), ("float16", "f16"), ("bfloat16", "bf16")):
        rounded = floats.dequantise(format, floats.encode(format, values))
        assert np.array_equal(held(float_tensor(values), "none", dtype), rounded)
