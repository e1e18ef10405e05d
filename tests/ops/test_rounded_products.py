"""Products with weights rounded at load (groups of 32, 64 and 128, w8a8) against numpy, on every ISA, over odd shapes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.harness import ISAS, cpu, float_tensor, relative_error, rows_op, run, step
from tests.ops.test_linear import rounded_activations

from octavo import _native
from octavo.loader.formats import evaluate, quantise
from octavo.ops.arrays import F32
from octavo.ops.interface import FLOAT_TOLERANCE

CODES = [("int8", 32), ("int8", 64), ("int8", 128), ("int4", 32), ("int4", 64), ("int4", 128), ("w8a8", 32)]
SHAPES = [(1, 32, 1), (2, 96, 16), (5, 160, 17), (13, 576, 70), (26, 224, 33), (49, 1536, 48)]
"""(rows, columns, outputs): rows of every tile, columns that end a group early, outputs that leave panels over."""


def packed(w: F32, bias: F32 | None, quantization: str, group: int) -> _native.Linear:
    """The weight alone: a backend of its own, so that the rows of `rows_op` are not rounded with it."""
    parameters = cpu(quantization=quantization, group_size=group).parameters
    weight: _native.Linear = parameters.load_linear([float_tensor(w)], [None if bias is None else float_tensor(bias, "bias")])
    return weight


def product(isa: str, x: F32, weight: _native.Linear, threads: int = 1) -> F32:
    return rows_op(cpu(isa, threads), x, lambda ops, t: ops.linear(t, weight))


def random_pair(rows: int, columns: int, outputs: int) -> tuple[F32, F32, F32]:
    rng = np.random.default_rng(rows)
    x, w = rng.standard_normal((rows, columns), np.float32), rng.standard_normal((outputs, columns), np.float32)
    x[:, 3] *= 20
    return x, w, rng.standard_normal(outputs).astype(np.float32)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("quantization", "group"), CODES)
@pytest.mark.parametrize(("rows", "columns", "outputs"), SHAPES)
def test_products_equal_numpy_on_the_same_rounded_numbers(
    isa: str, quantization: str, group: int, rows: int, columns: int, outputs: int
) -> None:
    x, w, bias = random_pair(rows, columns, outputs)
    per_row = quantization == "w8a8"
    values = evaluate(quantise(w, quantization, columns if per_row else group)).astype(np.float64)
    exact = rounded_activations(x, columns if per_row else 32).astype(np.float64) @ values.T + bias
    result = product(isa, x, packed(w, bias, quantization, group))
    assert relative_error(result, exact) < FLOAT_TOLERANCE


@pytest.mark.parametrize(("quantization", "group"), CODES)
@pytest.mark.parametrize(("rows", "columns", "outputs"), SHAPES)
def test_products_agree_to_the_bit_on_all_isas(quantization: str, group: int, rows: int, columns: int, outputs: int) -> None:
    x, w, _ = random_pair(rows, columns, outputs)
    weight = packed(w, None, quantization, group)
    results = [product(isa, x, weight) for isa in ISAS]
    for isa, result in zip(ISAS, results, strict=True):
        assert result.tobytes() == results[0].tobytes(), isa


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("quantization", "group"), [("int8", 128), ("int4", 64), ("int4", 128), ("w8a8", 32)])
def test_a_row_gives_the_same_bytes_in_any_company(isa: str, quantization: str, group: int) -> None:
    x, w, _ = random_pair(40, 288, 70)
    weight = packed(w, None, quantization, group)
    whole = product(isa, x, weight)
    for threads in (1, 2):
        for count in range(1, 26):
            assert product(isa, x[:count], weight, threads).tobytes() == whole[:count].tobytes(), (threads, count)


@pytest.mark.parametrize("isa", ISAS)
def test_w8a8_is_exact_where_every_number_is_whole(isa: str) -> None:
    """Largest sums: all codes +-127 over as many columns as are allowed; float32 rounds the sum once."""
    columns = 65536
    x, w = np.full((2, columns), 127, np.float32), np.full((3, columns), 127, np.float32)
    x[1], w[1] = -127, -127
    w[2, ::2] = -127
    result = product(isa, x, packed(w, None, "w8a8", 32))
    assert np.array_equal(result, (x.astype(np.float64) @ w.T.astype(np.float64)).astype(np.float32))


@pytest.mark.parametrize("isa", ISAS)
def test_w8a8_rows_of_zeros_give_the_bias(isa: str) -> None:
    x, w, bias = random_pair(3, 64, 20)
    x[1] = 0
    x[2] = 1e-38
    result = product(isa, x, packed(w, bias, "w8a8", 32))
    assert result[1:].tobytes() == np.stack([bias, bias]).tobytes()


def test_one_input_feeds_products_of_both_kinds_of_rounding() -> None:
    x, w, _ = random_pair(6, 64, 40)
    by_row, by_group = packed(w, None, "w8a8", 32), packed(w, None, "int8", 32)
    backend = cpu(threads=2)
    for eager in (False, True):
        both = rows_op(backend, x, lambda ops, t: ops.add(ops.linear(t, by_row), ops.linear(t, by_group)), eager)
        assert both.tobytes() == (product("auto", x, by_row) + product("auto", x, by_group)).tobytes()


def test_parts_that_take_activations_differently_are_refused() -> None:
    weight = packed(np.ones((4, 64), np.float32), None, "w8a8", 32)
    with pytest.raises(ValueError, match="rounded alike"):
        weight.append_codes(
            _native.ThreadPool(1), np.zeros((4, 64), np.uint8), np.ones((4, 2), np.float32), None, 8, 32, 128, False
        )


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("isa", ISAS)
def test_codes_with_integer_zero_points_map_onto_minimums_without_loss(isa: str, group: int) -> None:
    """As AWQ and GPTQ store them: value = scale * (code - zero point), scale in float16, zero points of 4 bits."""
    rng = np.random.default_rng(group)
    codes = rng.integers(0, 16, (21, 416), np.uint8)
    shape = (21, -(-416 // group))
    scales = rng.uniform(1e-4, 0.1, shape).astype(np.float16).astype(np.float32)
    zero_points = rng.integers(1, 17, shape).astype(np.float32)
    weight = _native.Linear()
    assert weight.append_codes(_native.ThreadPool(1), codes, scales, -scales * zero_points, 4, group, 0, False)
    spread = [np.repeat(table, group, axis=1)[:, :416] for table in (scales, zero_points)]
    values = spread[0] * (codes.astype(np.float32) - spread[1])
    backend = cpu(isa)
    rows = np.arange(21, dtype=np.int32)
    held = run(backend, lambda ops: ops.embedding(weight), step([21], token_ids=rows))
    assert np.array_equal(held, values)
    x = rng.standard_normal((7, 416), np.float32)
    exact = rounded_activations(x).astype(np.float64) @ values.T.astype(np.float64)
    assert relative_error(product(isa, x, weight), exact) < FLOAT_TOLERANCE
