"""Routes and experts of the native backend against numpy: ties, experts without rows, all rows to one expert, any company."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.ops.harness import ISAS, AnyOps, block_tensor, cpu, float_tensor, reference, relative_error, rows_op

from octavo.loader.stored import StoredRows
from octavo.ops.arrays import F32
from octavo.ops.interface import FLOAT_TOLERANCE
from octavo.ops.registry import AnyBackend

COLUMNS, INNER, NUM_EXPERTS = 64, 48, 7
FORMATS = {"f32": COLUMNS, "q8_0": COLUMNS, "q4_1": COLUMNS, "q4_k": 256}


def router(kind: str, columns: int) -> F32:
    """[NUM_EXPERTS, columns]: random, or such that all logits are equal, or such that positive rows go to expert 5."""
    rng = np.random.default_rng(1)
    values = {"random": rng.standard_normal((NUM_EXPERTS, columns)), "equal": np.zeros((NUM_EXPERTS, columns))}
    values["one"] = np.zeros((NUM_EXPERTS, columns))
    values["one"][5] = 1.0
    return values[kind].astype(np.float32)


def experts(format: str, columns: int) -> list[StoredRows]:
    rng = np.random.default_rng(2)
    if format == "f32":
        return [float_tensor(rng.standard_normal((INNER, columns), np.float32)) for _ in range(NUM_EXPERTS)]
    return [block_tensor(rng, format, INNER, columns) for _ in range(NUM_EXPERTS)]


def mixture(
    backend: AnyBackend, matrix: F32, stored: Sequence[StoredRows], top_k: int, renormalise: bool
) -> Callable[[AnyOps, Any], Any]:
    logits = backend.parameters.load_linear([float_tensor(matrix)], [None], "router", None)
    weights = [backend.parameters.load_linear([part], [None], "expert") for part in stored]

    def op(ops: AnyOps, x: Any) -> Any:
        routes = ops.route(ops.linear(x, logits), top_k, renormalise)
        return ops.combine(ops.experts(ops.dispatch(x, routes), weights, routes), routes)

    return op


def rows(count: int, columns: int) -> F32:
    return np.abs(np.random.default_rng(3).standard_normal((count, columns), np.float32))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", ["random", "equal", "one"])
@pytest.mark.parametrize(("top_k", "renormalise"), [(1, False), (3, True), (7, False)])
def test_a_mixture_equals_numpy(isa: str, kind: str, top_k: int, renormalise: bool) -> None:
    x, matrix, stored = rows(13, COLUMNS), router(kind, COLUMNS), experts("f32", COLUMNS)
    found, exact = (
        rows_op(backend, x, mixture(backend, matrix, stored, top_k, renormalise)) for backend in (cpu(isa, 2), reference())
    )
    assert relative_error(found, exact) < FLOAT_TOLERANCE


@pytest.mark.parametrize("backend", [cpu(), reference()], ids=["cpu", "reference"])
def test_the_lower_of_equal_experts_comes_first(backend: AnyBackend) -> None:
    matrix = router("one", COLUMNS)
    logits = backend.parameters.load_linear([float_tensor(matrix)], [None], "router", None)
    routes = rows_op(backend, rows(3, COLUMNS), lambda ops, x: ops.route(ops.linear(x, logits), 4, True))
    assert routes[:, :4].tolist() == [[5, 0, 1, 2]] * 3
    assert np.allclose(routes[:, 4:].sum(axis=1), 1)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_row_gives_the_same_bytes_in_any_company_of_rows_and_threads(isa: str, format: str) -> None:
    columns = FORMATS[format]
    x, matrix, stored = rows(60, columns), router("random", columns), experts(format, columns)
    together: dict[int, bytes] = {}
    for threads in (1, 2, 3):
        backend = cpu(isa, threads)
        op = mixture(backend, matrix, stored, 3, True)
        for count, eager in ((1, False), (2, False), (5, True), (17, False), (60, False), (60, True)):
            for row, values in enumerate(rows_op(backend, x[:count], op, eager)):
                assert values.tobytes() == together.setdefault(row, values.tobytes()), (threads, count, eager, row)


def gated_by(weight: Any) -> Callable[[AnyOps, Any], Any]:
    return lambda ops, x: ops.gate_rows(x, ops.linear(x, weight))


def test_a_gate_weights_each_row() -> None:
    x, gate = rows(5, COLUMNS), router("random", COLUMNS)[:1]
    results = []
    for backend in (cpu(), reference()):
        weight = backend.parameters.load_linear([float_tensor(gate)], [None], "router", None)
        results.append(rows_op(backend, x, gated_by(weight)))
    assert relative_error(*results) < FLOAT_TOLERANCE


def test_what_does_not_fit_is_refused() -> None:
    backend = cpu()
    matrix, stored = router("random", COLUMNS), experts("f32", COLUMNS)
    with pytest.raises(ValueError, match="top_k must lie between 1 and the number of experts"):
        rows_op(backend, rows(2, COLUMNS), mixture(backend, matrix, stored, 8, True))
    with pytest.raises(ValueError, match="one weight per expert"):
        rows_op(backend, rows(2, COLUMNS), mixture(backend, matrix, stored[:-1], 2, True))
    with pytest.raises(ValueError, match="held alike"):
        rows_op(backend, rows(2, COLUMNS), mixture(backend, matrix, [*stored[:-1], experts("q8_0", COLUMNS)[0]], 2, True))
