"""The operations that encoders alone use: layer norm, gelu, learned positions, attention over the whole sequence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.ops.harness import ISAS, AnyOps, cpu, float_tensor, reference, relative_error, rows_op, run, step

from octavo.ops.arrays import F32
from octavo.ops.interface import FLOAT_TOLERANCE, AttentionSpec, KVCacheSpec, StepInputs
from octavo.ops.registry import AnyBackend

RNG = np.random.default_rng(7)
HEADS, HEAD_DIM = 3, 16
WIDTH = HEADS * HEAD_DIM
LENGTHS = [1, 37, 330, 16]
KV = KVCacheSpec(1, 4 * 21, HEADS, 16, HEAD_DIM, "float32")


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("columns", [8, 48, 37, 384])
def test_layer_norm_equals_the_formula(isa: str, columns: int) -> None:
    x = RNG.standard_normal((9, columns), np.float32) * 3 + np.float32(50)
    weight, bias = RNG.standard_normal((2, columns), np.float32)

    def norm(backend: AnyBackend) -> F32:
        scale, shift = (backend.parameters.load_vector(float_tensor(values)) for values in (weight, bias))
        return rows_op(backend, x, lambda ops, t: ops.layer_norm(t, scale, shift, 1e-5))

    exact = x.astype(np.float64)
    exact = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5) * weight + bias
    assert relative_error(norm(cpu(isa)), exact.astype(np.float32)) < FLOAT_TOLERANCE
    assert relative_error(norm(reference()), exact.astype(np.float32)) < FLOAT_TOLERANCE


@pytest.mark.parametrize("isa", ISAS)
def test_gelu_equals_the_formula_far_out_too(isa: str) -> None:
    far = np.array([0, -0.0, 1e-30, -1e-30, 1e4, -1e4], np.float32)
    x = np.concatenate([np.linspace(-12, 12, 4001, dtype=np.float32), far])
    exact = np.array([value / 2 * (1 + math.erf(value / math.sqrt(2))) for value in x.tolist()])
    for backend in (cpu(isa), reference()):
        (found,) = rows_op(backend, x[None], lambda ops, t: ops.gelu(t))
        assert np.abs(found - exact).max() < 2e-6 and np.isfinite(found).all()


@pytest.mark.parametrize("eager", [False, True])
def test_rows_are_looked_up_by_position_or_are_the_first(eager: bool) -> None:
    values = RNG.standard_normal((40, 24), np.float32)
    inputs = step([3, 5], firsts=[0, 7], token_ids=np.full(8, 39, np.int32))
    for backend in (cpu(threads=2), reference()):
        table = backend.parameters.load_linear([float_tensor(values)], [None])
        by_position = run(backend, lambda ops, t=table: ops.embedding(t, by="position"), inputs, eager)  # type: ignore[misc]
        first = run(backend, lambda ops, t=table: ops.embedding(t, by="zero"), inputs, eager)  # type: ignore[misc]
        np.testing.assert_array_equal(by_position, values[[0, 1, 2, 7, 8, 9, 10, 11]])
        np.testing.assert_array_equal(first, values[[0] * 8])


@pytest.mark.parametrize("eager", [False, True])
def test_a_position_beyond_the_table_is_refused(eager: bool) -> None:
    backend = cpu()
    table = backend.parameters.load_linear([float_tensor(np.ones((8, 16), np.float32))], [None])
    with pytest.raises(ValueError, match="position"):
        run(backend, lambda ops: ops.embedding(table, by="position"), step([9], token_ids=np.zeros(9, np.int32)), eager)


def attend(backend: AnyBackend, qkv: F32, inputs: StepInputs, *, eager: bool = False) -> F32:
    """Attention of the step's tokens, whose queries, keys and values stand in a row of qkv."""
    table = backend.parameters.load_linear([float_tensor(qkv)], [None])
    spec = AttentionSpec(0, HEADS, HEADS, HEAD_DIM, HEAD_DIM**-0.5, causal=False)

    def forward(ops: AnyOps) -> Any:
        q, k, v = ops.split(ops.embedding(table), [WIDTH] * 3)
        ops.kv_write(k, v, spec)
        return ops.paged_attention(q, spec)

    return run(backend, forward, inputs, eager)


def formula(qkv: F32) -> F32:
    """Softmax attention of all rows over all rows of one sequence."""
    q, k, v = (part.reshape(len(qkv), HEADS, HEAD_DIM).swapaxes(0, 1) for part in np.split(qkv.astype(np.float64), 3, axis=1))
    scores = np.exp(q @ k.swapaxes(1, 2) * HEAD_DIM**-0.5)
    out: F32 = (scores / scores.sum(2, keepdims=True) @ v).swapaxes(0, 1).reshape(len(qkv), WIDTH).astype(np.float32)
    return out


def test_every_row_sees_its_whole_sequence_and_no_other() -> None:
    qkv = RNG.standard_normal((sum(LENGTHS), 3 * WIDTH), np.float32)
    exact = np.concatenate([formula(part) for part in np.split(qkv, np.cumsum(LENGTHS)[:-1])])
    for backend in (*(cpu(isa, kv=KV) for isa in ISAS), reference(KV)):
        assert relative_error(attend(backend, qkv, step(LENGTHS)), exact) < FLOAT_TOLERANCE


@pytest.mark.parametrize("isa", ISAS)
def test_neighbours_threads_and_eager_change_no_byte(isa: str) -> None:
    qkv = RNG.standard_normal((sum(LENGTHS), 3 * WIDTH), np.float32)
    starts = [0, *np.cumsum(LENGTHS).tolist()]
    alone = [
        attend(cpu(isa, kv=KV), qkv, step([length], token_ids=np.arange(start, start + length, dtype=np.int32)))
        for start, length in zip(starts, LENGTHS, strict=False)
    ]
    for threads in (1, 2, 3):
        for eager in (False, True):
            together = attend(cpu(isa, threads, kv=KV), qkv, step(LENGTHS), eager=eager)
            assert together.tobytes() == b"".join(rows.tobytes() for rows in alone), (threads, eager)
