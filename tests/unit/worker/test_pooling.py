"""Pooler: rows of one sequence to one vector, whatever chunks they come in."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.ops.arrays import F32
from octavo.pooling_params import POOLING_KINDS, PoolingKind
from octavo.worker.pooling import Pooler

ROWS = np.random.default_rng(0).standard_normal((57, 40), np.float32) * np.float32(1000)


def one_by_one(kind: PoolingKind) -> bytes:
    total = ROWS[0].copy()
    for row in ROWS[1:]:
        total = total + row
    vectors: dict[str, F32] = {"last": ROWS[-1], "cls": ROWS[0], "mean": total / np.float32(len(ROWS))}
    return vectors[kind].tobytes()


@pytest.mark.parametrize("kind", POOLING_KINDS)
@pytest.mark.parametrize("chunk", [1, 2, 7, 56, 57])
def test_chunks_leave_the_bytes_of_rows_added_one_by_one(kind: PoolingKind, chunk: int) -> None:
    pooler = Pooler(kind)
    wide = np.zeros((57, 48), np.float32)  # rows as they lie in a buffer that is wider than they are
    wide[:, :40] = ROWS
    for first in range(0, 57, chunk):
        pooler.add(first, wide[first : first + chunk, :40])
    assert pooler.vector().tobytes() == one_by_one(kind)


@pytest.mark.parametrize("kind", POOLING_KINDS)
def test_rows_that_come_again_count_once(kind: PoolingKind) -> None:
    pooler = Pooler(kind)
    for first, last in ((0, 20), (0, 20), (10, 30), (30, 57), (56, 57)):
        pooler.add(first, ROWS[first:last])
    assert pooler.vector().tobytes() == one_by_one(kind)


def test_only_the_last_row_needs_none_before_it() -> None:
    last, mean, cls = (Pooler(kind) for kind in POOLING_KINDS)
    last.add(30, ROWS[30:])
    assert last.vector().tobytes() == ROWS[-1].tobytes()
    for pooler in (mean, cls):
        with pytest.raises(ValueError, match="needs those from 0 on"):
            pooler.add(30, ROWS[30:])


@pytest.mark.parametrize("kind", POOLING_KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_a_fault(kind: PoolingKind, value: float) -> None:
    rows = ROWS[:3].copy()
    rows[:, 5] = value
    pooler = Pooler(kind)
    pooler.add(0, rows)
    with pytest.raises(ValueError, match="not finite"):
        pooler.vector()


def test_a_sum_that_leaves_float32_is_a_fault() -> None:
    pooler = Pooler("mean")
    pooler.add(0, np.full((3, 4), 3e38, np.float32))
    with pytest.raises(ValueError, match="not finite"):
        pooler.vector()
