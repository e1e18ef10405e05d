"""kv_write and paged_attention of the native backend: against the reference, and equal bytes however the work is cut."""

from __future__ import annotations

import numpy as np
import pytest
from harness import ISAS, cpu, float_tensor, reference, relative_error, run

from octavo.ops.interface import F32, FLOAT_TOLERANCE, I32, AttentionSpec, Backend, KVCacheSpec, Ops, StepInputs, Tensor

SEQUENCE = 330  # crosses every tile and split boundary


def attention_step(tables: I32, block_size: int, shares: list[tuple[int, int, int]]) -> StepInputs:
    """shares: (sequence, first position, number of tokens); token ids are rows of the table of q, k, v values."""
    positions = np.concatenate([np.arange(first, first + count) for _, first, count in shares])
    sequences = np.concatenate([np.full(count, sequence) for sequence, _, count in shares])
    counts = [count for _, _, count in shares]
    return StepInputs(
        token_ids=(sequences * SEQUENCE + positions).astype(np.int32),
        positions=positions.astype(np.int32),
        slot_mapping=(tables[sequences, positions // block_size] * block_size + positions % block_size).astype(np.int32),
        query_start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        first_position=np.array([first for _, first, _ in shares], np.int32),
        block_tables=np.ascontiguousarray(tables[[sequence for sequence, _, _ in shares]], np.int32),
        logit_rows=np.arange(len(positions), dtype=np.int32),
    )


def attend(backend: Backend, qkv: F32, spec: AttentionSpec, steps: list[StepInputs]) -> list[F32]:
    """Output of each step; qkv [tokens, (heads + 2 kv_heads) * head_dim] is looked up by token id."""
    table = backend.parameters.load_linear([float_tensor(qkv)], [None])
    sizes = [spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim]

    def forward(ops: Ops) -> Tensor:
        q, k, v = ops.split(ops.embedding(table), sizes)
        ops.kv_write(k, v, spec)
        return ops.paged_attention(q, spec)

    return [run(backend, forward, inputs) for inputs in steps]


def case(
    block_size: int, heads: int, kv_heads: int, head_dim: int, window: int | None, softcap: float | None
) -> tuple[KVCacheSpec, AttentionSpec, F32, I32]:
    rng = np.random.default_rng(head_dim + block_size)
    blocks_each = (SEQUENCE + block_size - 1) // block_size
    kv = KVCacheSpec(1, 2 * blocks_each + 3, kv_heads, block_size, head_dim, "float32")
    spec = AttentionSpec(0, heads, kv_heads, head_dim, head_dim**-0.5, window, softcap)
    qkv = rng.standard_normal((2 * SEQUENCE, (heads + 2 * kv_heads) * head_dim), np.float32)
    tables = rng.permutation(2 * blocks_each + 3)[: 2 * blocks_each].reshape(2, blocks_each).astype(np.int32)
    return kv, spec, qkv, tables


CASES = [
    (16, 9, 3, 64, None, None),
    (8, 4, 1, 16, None, None),
    (24, 4, 4, 8, 20, None),
    (64, 8, 2, 32, 100, 30.0),
    (128, 4, 1, 256, 64, None),
    (16, 6, 2, 80, None, 50.0),
]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("shape", CASES)
def test_attention_equals_reference(isa: str, shape: tuple[int, int, int, int, int | None, float | None]) -> None:
    kv, spec, qkv, tables = case(*shape)
    block_size = shape[0]
    steps = [
        attention_step(tables, block_size, [(0, 0, 300), (1, 0, 37)]),
        attention_step(tables, block_size, [(1, 37, 1), (0, 300, 29)]),
        attention_step(tables, block_size, [(0, 329, 1), (1, 38, 5)]),
    ]
    native = attend(cpu(isa, kv=kv), qkv, spec, steps)
    plain = attend(reference(kv), qkv, spec, steps)
    for ours, theirs in zip(native, plain, strict=True):
        assert relative_error(ours, theirs) < FLOAT_TOLERANCE


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("shape", CASES)
def test_chunks_batches_threads_and_block_sizes_give_the_same_bytes(
    isa: str, shape: tuple[int, int, int, int, int | None, float | None]
) -> None:
    expected: bytes | None = None
    for block_size, threads, chunk in ((shape[0], 1, SEQUENCE), (shape[0], 2, 1), (8, 2, 17), (32, 3, 64)):
        kv, spec, _, tables = case(block_size, *shape[1:])
        qkv = case(*shape)[2]
        rows = np.zeros((SEQUENCE, shape[1] * shape[3]), np.float32)
        steps, slices = [], []
        for first in range(0, SEQUENCE, chunk):
            count = min(chunk, SEQUENCE - first)
            shares = [(0, first, count)] if chunk == SEQUENCE else [(1, first, count), (0, first, count)]
            steps.append(attention_step(tables, block_size, shares))
            slices.append((first, count))
        if chunk == 1:  # decoding all positions is slow in the portable kernels; the first and last ones tell
            steps = [attention_step(tables, block_size, [(0, 0, 300)])] + steps[300:]
            slices = [(0, 300)] + slices[300:]
        for (first, count), out in zip(slices, attend(cpu(isa, threads, kv=kv), qkv, spec, steps), strict=True):
            rows[first : first + count] = out[-count:]
        expected = expected or rows.tobytes()
        assert rows.tobytes() == expected, (block_size, threads, chunk)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_cache_is_close_to_float32(isa: str, dtype: str) -> None:
    kv, spec, qkv, tables = case(16, 4, 2, 32, None, None)
    steps = [attention_step(tables, 16, [(0, 0, 200)])]
    half = KVCacheSpec(kv.num_layers, kv.num_blocks, kv.num_kv_heads, kv.block_size, kv.head_dim, dtype)
    exact = attend(reference(half), qkv, spec, steps)[0]
    ours = attend(cpu(isa, kv=half), qkv, spec, steps)[0]
    assert relative_error(ours, exact) < FLOAT_TOLERANCE


def test_copied_blocks_hold_the_same_keys_and_values() -> None:
    kv, spec, qkv, tables = case(16, 4, 2, 32, None, None)
    backend = cpu(kv=kv)
    first = attend(backend, qkv, spec, [attention_step(tables, 16, [(0, 0, 64), (1, 0, 1)])])[0]
    moved = tables.copy()
    moved[0, :4] = tables[1, 5:9]
    backend.copy_blocks(list(zip(tables[0, :4].tolist(), moved[0, :4].tolist(), strict=True)))
    last = attend(backend, qkv, spec, [attention_step(moved, 16, [(0, 63, 1)])])[0]
    assert last[0].tobytes() == first[63].tobytes()
