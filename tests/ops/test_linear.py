"""linear and embedding of the native backend against numpy, for every storage format, ISA and row count."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.ops.harness import ISAS, block_tensor, cpu, embedded, float_tensor, relative_error, rows_op, run, step, times

from octavo.errors import LoadError
from octavo.loader.stored import StoredRows
from octavo.ops.interface import F32, FLOAT_TOLERANCE

FORMATS_32 = ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1")
FORMATS_256 = ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k")


def rounded_activations(x: F32, group: int = 32) -> F32:
    """x as the int8 path sees it: per row and group of columns, code * (max|x| / 127)."""
    groups = x.reshape(len(x), -1, group)
    scale = (np.abs(groups).max(axis=2, keepdims=True) / np.float32(127)).astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = np.where(scale > 0, np.rint(groups / scale), 0)
    rounded: F32 = (codes * scale).reshape(x.shape).astype(np.float32)
    return rounded


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("rows", "columns", "outputs"), [(1, 3, 1), (2, 37, 16), (5, 64, 17), (13, 129, 50)])
def test_float32_product_equals_numpy(isa: str, rows: int, columns: int, outputs: int) -> None:
    rng = np.random.default_rng(rows)
    x, w = rng.standard_normal((rows, columns), np.float32), rng.standard_normal((outputs, columns), np.float32)
    bias = rng.standard_normal(outputs).astype(np.float32)
    backend = cpu(isa)
    weight = backend.parameters.load_linear([float_tensor(w)], [float_tensor(bias, "bias")])
    result = rows_op(backend, x, lambda ops, t: ops.linear(t, weight))
    exact = x.astype(np.float64) @ w.T.astype(np.float64) + bias
    assert relative_error(result, exact) < FLOAT_TOLERANCE


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("dtype", "numpy_type"), [("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)])
def test_half_weights_multiply_as_their_rounded_values(isa: str, dtype: str, numpy_type: type) -> None:
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((7, 96), np.float32), rng.standard_normal((33, 96), np.float32)
    backend = cpu(isa, dtype=dtype)
    weight = backend.parameters.load_linear([float_tensor(w)], [None])
    # The embedding table holds x, so it is rounded to dtype as well; use values that are exact in it.
    x = x.astype(numpy_type).astype(np.float32)
    result = rows_op(backend, x, lambda ops, t: ops.linear(t, weight))
    exact = x.astype(np.float64) @ w.astype(numpy_type).astype(np.float64).T
    assert relative_error(result, exact) < FLOAT_TOLERANCE


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", FORMATS_32 + FORMATS_256)
def test_quantised_product_equals_numpy_on_the_same_rounded_activations(isa: str, format: str) -> None:
    rng = np.random.default_rng(2)
    columns = 256 if format in FORMATS_256 else 96
    weights = block_tensor(rng, format, 21, columns)
    x = rng.standard_normal((9, columns), np.float32)
    x[3] = 0
    backend = cpu(isa)
    weight = backend.parameters.load_linear([weights], [None])
    result = rows_op(backend, x, lambda ops, t: ops.linear(t, weight))
    exact = rounded_activations(x).astype(np.float64) @ weights.to_float32().T.astype(np.float64)
    assert relative_error(result, exact) < FLOAT_TOLERANCE
    assert not result[3].any()


@pytest.mark.parametrize("format", FORMATS_32 + FORMATS_256)
def test_quantised_products_agree_to_the_bit_on_all_isas(format: str) -> None:
    rng = np.random.default_rng(3)
    columns = 512 if format in FORMATS_256 else 160
    weights = block_tensor(rng, format, 40, columns)
    x = rng.standard_normal((17, columns), np.float32) * 3
    results = []
    for isa in ISAS:
        backend = cpu(isa)
        weight = backend.parameters.load_linear([weights], [None])
        results.append(rows_op(backend, x, times(weight)))
    for isa, result in zip(ISAS, results, strict=True):
        assert result.tobytes() == results[0].tobytes(), isa


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", ["f32", "f16", "bf16", "q8_0", "q4_1", "q4_k", "q5_k", "q6_k"])
def test_a_row_gives_the_same_bytes_in_any_company(isa: str, format: str) -> None:
    rng = np.random.default_rng(4)
    weights = stored(rng, format, 70, 256)
    x = rng.standard_normal((40, 256), np.float32)
    together: dict[int, F32] = {}
    for threads in (1, 2):
        backend = cpu(isa, threads)
        weight = backend.parameters.load_linear([weights], [None])
        for count in (1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 23, 40):
            result = rows_op(backend, x[:count], times(weight))
            for row in range(count):
                assert result[row].tobytes() == together.setdefault(row, result[row]).tobytes(), (threads, count, row)


class _PlainScales:
    """A k-quant as codes with float32 scales: the plain twin of units and steps."""

    def __init__(self, stored: StoredRows) -> None:
        self._stored = stored

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stored, name)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", ["q4_k", "q5_k", "q6_k"])
@pytest.mark.parametrize("columns", [512, 16384, 33024])  # scales of four panels, of two, of none fit the memory for them
def test_units_and_steps_of_k_quants_give_the_bytes_of_float32_scales(isa: str, format: str, columns: int) -> None:
    rng = np.random.default_rng(6)
    weights = block_tensor(rng, format, 37, columns)
    bias = float_tensor(rng.standard_normal(37).astype(np.float32), "bias")
    backend = cpu(isa)
    x = rng.standard_normal((9, columns), np.float32)
    held, plain = (backend.parameters.load_linear([part], [bias]) for part in (weights, _PlainScales(weights)))
    assert held.bytes < plain.bytes
    for count in (1, 3, 4, 5, 9):
        results = [rows_op(backend, x[:count], times(weight)).tobytes() for weight in (held, plain)]
        assert results[0] == results[1], count


def stored(rng: np.random.Generator, format: str, rows: int, columns: int) -> StoredRows:
    if format not in ("f32", "f16", "bf16"):
        return block_tensor(rng, format, rows, columns)
    values = rng.standard_normal((rows, columns), np.float32)
    kind = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[format]
    return StoredRows("weight", (rows, columns), format, values.astype(kind).view(np.uint8), None, "memory: weight")


def test_parts_of_different_formats_stand_side_by_side() -> None:
    rng = np.random.default_rng(5)
    parts = [stored(rng, "q4_1", 20, 64), stored(rng, "f32", 7, 64), stored(rng, "q8_0", 33, 64)]
    x = rng.standard_normal((6, 64), np.float32)
    backend = cpu()
    whole = backend.parameters.load_linear(parts, [None] * 3)
    result = rows_op(backend, x, lambda ops, t: ops.linear(t, whole))
    column = 0
    for part in parts:
        weight = backend.parameters.load_linear([part], [None])
        alone = rows_op(backend, x, times(weight))
        rows = part.shape[0]
        assert result[:, column : column + rows].tobytes() == alone.tobytes()
        column += rows


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", ["f32", "f16", "bf16", *FORMATS_32, *FORMATS_256])
def test_embedding_gives_the_exact_stored_values(isa: str, format: str) -> None:
    rng = np.random.default_rng(6)
    table = stored(rng, format, 19, 256)
    backend = cpu(isa)
    weight = backend.parameters.load_linear([table], [None])
    inputs = step([19])
    result = run(backend, lambda ops: ops.embedding(weight, 0.5), inputs)
    np.testing.assert_allclose(result, table.to_float32() * np.float32(0.5), rtol=1e-6, atol=1e-7)


def test_row_order_of_a_stored_tensor_is_undone() -> None:
    rng = np.random.default_rng(7)
    plain = block_tensor(rng, "q4_0", 32, 64)
    order = rng.permutation(32).astype(np.int32)
    shuffled = StoredRows(plain.name, plain.shape, plain.format, plain.data[np.argsort(order)].copy(), order, plain.source)
    x = rng.standard_normal((3, 64), np.float32)
    backend = cpu()
    results = []
    for tensor in (plain, shuffled):
        weight = backend.parameters.load_linear([tensor], [None])
        results.append(rows_op(backend, x, times(weight)))
    assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_widened_blocks_equal_their_dequantised_values(dtype: str) -> None:
    rng = np.random.default_rng(8)
    kind = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]
    for format in FORMATS_32 + FORMATS_256:
        tensor = block_tensor(rng, format, 18, 256)
        backend = cpu(dtype=dtype)
        weight = backend.parameters.load_linear([tensor], [None])
        result = run(backend, embedded(weight), step([18]))
        np.testing.assert_array_equal(result, tensor.to_float32().astype(kind).astype(np.float32), err_msg=format)


def test_a_scale_that_is_not_finite_is_refused_by_name() -> None:
    rng = np.random.default_rng(9)
    tensor = block_tensor(rng, "q8_0", 8, 64)
    tensor.data[5, 0:2] = np.array([np.nan], np.float16).view(np.uint8)
    with pytest.raises(LoadError, match="memory: weight"):
        cpu().parameters.load_linear([tensor], [None])
    values = rng.standard_normal((4, 8), np.float32)
    values[2, 3] = np.inf
    with pytest.raises(LoadError, match="memory: weight"):
        cpu().parameters.load_linear([float_tensor(values)], [None])
