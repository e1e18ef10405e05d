"""Codes whose groups of columns lie anywhere (desc_act of GPTQ): products equal those of sorted columns, to the bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.ops.harness import ISAS, AnyOps, cpu, relative_error, rows_op
from tests.ops.test_linear import rounded_activations

from octavo import _native
from octavo.errors import LoadError
from octavo.loader.coded_tensor import CodedTensor, Grid
from octavo.ops.arrays import F32, I32
from octavo.ops.interface import FLOAT_TOLERANCE

SHAPES = [(1, 32, 16, 32), (2, 96, 17, 16), (5, 160, 33, 32), (13, 576, 70, 64), (26, 256, 48, 128)]
"""(rows, columns, outputs, columns per group)"""


def coded(outputs: int, group_of: I32, bits: int = 4, seed: int = 0) -> CodedTensor:
    """Random codes with a scale and a zero point per output and group."""
    rng = np.random.default_rng(seed)
    columns, groups = len(group_of), int(group_of.max()) + 1
    codes = rng.integers(0, 1 << bits, (outputs, columns)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.02, (outputs, groups)).astype(np.float16).astype(np.float32)
    zeros = rng.integers(0, 1 << bits, (outputs, groups)).astype(np.int32)
    return CodedTensor("weight", "memory: weight", Grid((outputs, columns), bits, lambda: codes, scales, zeros, group_of))


def shuffled(columns: int, group: int) -> I32:
    groups: I32 = (np.arange(columns) // group).astype(np.int32)
    return np.random.default_rng(columns).permutation(groups)


def inputs(rows: int, columns: int) -> F32:
    x = np.random.default_rng(rows).standard_normal((rows, columns), np.float32)
    x[:, 3] *= 20
    return x


def loaded(*parts: CodedTensor, role: Any = "mlp") -> _native.Linear:
    weight: _native.Linear = cpu().parameters.load_linear(list(parts), [None] * len(parts), role)
    return weight


def product(isa: str, x: F32, weight: _native.Linear, eager: bool = False) -> F32:
    return rows_op(cpu(isa), x, lambda ops, t: ops.linear(t, weight), eager)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize(("rows", "columns", "outputs", "group"), SHAPES)
def test_products_are_those_of_columns_in_order(isa: str, bits: int, rows: int, columns: int, outputs: int, group: int) -> None:
    x, tensor = inputs(rows, columns), coded(outputs, shuffled(columns, group), bits)
    blocks = tensor.to_codes()
    order = np.argsort(tensor.grid.group_of, kind="stable")
    in_order = replace(tensor.grid, codes=lambda: tensor.grid.codes()[:, order], group_of=tensor.grid.group_of[order])
    found = product(isa, x, loaded(tensor))
    expected = product(isa, x[:, order], loaded(replace(tensor, grid=in_order)))
    assert found.tobytes() == expected.tobytes()
    assert found.tobytes() == product(isa, x, loaded(tensor), eager=True).tobytes()
    if columns > group:
        assert blocks.column_order is not None and np.array_equal(blocks.column_order, order)
    exact = rounded_activations(x[:, order], 32).astype(np.float64) @ tensor.to_float32()[:, order].T.astype(np.float64)
    assert relative_error(found, exact) < FLOAT_TOLERANCE


def test_one_input_is_rounded_again_for_a_matrix_of_another_order() -> None:
    x = inputs(5, 96)
    first, second = coded(32, shuffled(96, 16)), coded(32, shuffled(96, 16)[::-1].copy(), seed=1)
    plain = coded(32, (np.arange(96) // 16).astype(np.int32), seed=2)
    weights = [loaded(tensor) for tensor in (first, plain, second, first)]

    def op(ops: AnyOps, t: Any) -> Any:
        total = ops.linear(t, weights[0])
        for weight in weights[1:]:
            total = ops.add(total, ops.linear(t, weight))
        return total

    alone = [product("auto", x, weight) for weight in weights]
    expected = ((alone[0] + alone[1]) + alone[2]) + alone[3]
    for eager in (False, True):
        assert rows_op(cpu(), x, op, eager).tobytes() == expected.tobytes()


def test_parts_of_one_weight_share_their_order() -> None:
    x, order = inputs(6, 96), shuffled(96, 32)
    parts = [coded(32, order), coded(48, order, seed=1)]
    found = product("auto", x, loaded(*parts))
    assert found.tobytes() == np.concatenate([product("auto", x, loaded(part)) for part in parts], axis=1).tobytes()


@pytest.mark.parametrize(
    ("parts", "role", "words"),
    [
        ([0, 1], "attention", "in another way than a matrix that has the same input"),
        ([0, 2], "attention", "in another way than a matrix that has the same input"),
        ([2, 0], "mlp", "in another way than a matrix that has the same input"),
        ([0], "embedding", "which an embedding cannot do"),
        ([0], "expert", "which an expert cannot do"),
    ],
)
def test_what_cannot_be_ordered_is_refused_with_the_way_out(parts: list[int], role: str, words: str) -> None:
    orders = [shuffled(96, 16), shuffled(96, 16)[::-1].copy(), (np.arange(96) // 16).astype(np.int32)]
    with pytest.raises(LoadError, match=f"memory: weight: .*{words}; add --dtype bfloat16"):
        loaded(*(coded(32, orders[part]) for part in parts), role=role)


def test_groups_that_no_kernel_has_are_refused() -> None:
    for size in (8, 24, 40):
        with pytest.raises(LoadError, match="multiples of 16 columns a group"):
            coded(16, (np.arange(96) // size).astype(np.int32))
