"""kv_write and paged_attention of the native backend: against the reference, and equal bytes however the work is cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.ops.harness import ISAS, AnyOps, cpu, float_tensor, reference, relative_error, run

from octavo.ops.arrays import F32, I32
from octavo.ops.interface import FLOAT_TOLERANCE, AttentionSpec, KVCacheSpec, StepInputs
from octavo.ops.registry import AnyBackend

SEQUENCE = 330  # crosses every tile and split boundary
LONG = 1000  # enough splits for several threads
DTYPES = ("float32", "float16", "bfloat16", "int8")


def attention_step(tables: I32, block_size: int, shares: list[tuple[int, int, int]], length: int = SEQUENCE) -> StepInputs:
    """shares: (sequence, first position, number of tokens); token ids are rows of the table of q, k, v values.

    length  tokens of each sequence in that table
    """
    positions = np.concatenate([np.arange(first, first + count) for _, first, count in shares])
    sequences = np.concatenate([np.full(count, sequence) for sequence, _, count in shares])
    counts = [count for _, _, count in shares]
    return StepInputs(
        token_ids=(sequences * length + positions).astype(np.int32),
        positions=positions.astype(np.int32),
        slot_mapping=(tables[sequences, positions // block_size] * block_size + positions % block_size).astype(np.int32),
        query_start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        first_position=np.array([first for _, first, _ in shares], np.int32),
        block_tables=np.ascontiguousarray(tables[[sequence for sequence, _, _ in shares]], np.int32),
        logit_rows=np.arange(len(positions), dtype=np.int32),
    )


def attend(
    backend: AnyBackend, qkv: F32, spec: AttentionSpec, steps: list[StepInputs], *, factor: float = 1.0, eager: bool = False
) -> list[F32]:
    """Output of each step; qkv [tokens, (heads + 2 kv_heads) * head_dim] is looked up by token id and times factor."""
    table = backend.parameters.load_linear([float_tensor(qkv)], [None])
    sizes = [spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim]

    def forward(ops: AnyOps) -> Any:
        q, k, v = ops.split(ops.embedding(table, factor), sizes)
        ops.kv_write(k, v, spec)
        return ops.paged_attention(q, spec)

    return [run(backend, forward, inputs, eager) for inputs in steps]


def case(
    block_size: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    window: int | None,
    softcap: float | None,
    length: int = SEQUENCE,
) -> tuple[KVCacheSpec, AttentionSpec, F32, I32]:
    """Two sequences of `length` random tokens with their blocks in random places."""
    rng = np.random.default_rng(head_dim + block_size)
    blocks_each = (length + block_size - 1) // block_size
    kv = KVCacheSpec(1, 2 * blocks_each + 3, kv_heads, block_size, head_dim, "float32")
    spec = AttentionSpec(0, heads, kv_heads, head_dim, head_dim**-0.5, window, softcap)
    qkv = rng.standard_normal((2 * length, (heads + 2 * kv_heads) * head_dim), np.float32)
    tables = rng.permutation(2 * blocks_each + 3)[: 2 * blocks_each].reshape(2, blocks_each).astype(np.int32)
    return kv, spec, qkv, tables


CASES = [
    (16, 9, 3, 64, None, None),
    (8, 4, 1, 16, None, None),
    (24, 4, 4, 8, 20, None),
    (64, 8, 2, 32, 100, 30.0),
    (128, 4, 1, 256, 64, None),
    (16, 6, 2, 80, None, 50.0),
    (40, 2, 2, 72, 300, None),
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
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_chunks_batches_threads_and_block_sizes_give_the_same_bytes(
    isa: str, shape: tuple[int, int, int, int, int | None, float | None], dtype: str
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
        for (first, count), out in zip(
            slices, attend(cpu(isa, threads, kv=replace(kv, dtype=dtype)), qkv, spec, steps), strict=True
        ):
            rows[first : first + count] = out[-count:]
        expected = expected or rows.tobytes()
        assert rows.tobytes() == expected, (block_size, threads, chunk)


LONG_CASES = [
    (16, 9, 3, 64, None, None),
    (24, 4, 1, 32, 700, None),
    (32, 4, 1, 256, None, 20.0),
    (16, 2, 1, 48, 300, None),
]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", LONG_CASES)
def test_a_long_context_shared_by_threads_gives_the_bytes_of_one_thread(
    isa: str, dtype: str, shape: tuple[int, int, int, int, int | None, float | None]
) -> None:
    kv, spec, qkv, tables = case(*shape, LONG)
    kv = replace(kv, dtype=dtype)
    shares = [
        [(0, 0, LONG - 9), (1, 0, 5)],
        [(0, LONG - 9, 1)],
        [(1, 5, 1), (0, LONG - 8, 1)],
        [(0, LONG - 7, 6)],
        [(0, LONG - 1, 1), (1, 6, 2)],
    ]
    steps = [attention_step(tables, shape[0], step, LONG) for step in shares]
    alone = attend(cpu(isa, 1, kv=kv), qkv, spec, steps)
    for threads, eager in ((2, False), (3, True)):
        shared = attend(cpu(isa, threads, kv=kv), qkv, spec, steps, eager=eager)
        assert [out.tobytes() for out in shared] == [out.tobytes() for out in alone], threads


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize("block_size", [16, 40])
def test_a_narrow_cache_equals_the_reference_of_its_type(isa: str, dtype: str, block_size: int) -> None:
    kv, spec, qkv, tables = case(block_size, 4, 2, 32, None, None)
    narrow = replace(kv, dtype=dtype)
    steps = [attention_step(tables, block_size, [(0, 0, 300)])]
    exact = attend(reference(narrow), qkv, spec, steps)[0]
    ours = attend(cpu(isa, kv=narrow), qkv, spec, steps)[0]
    assert relative_error(ours, exact) < FLOAT_TOLERANCE


@pytest.mark.parametrize("isa", ISAS)
def test_int8_keys_and_values_are_close_to_float32(isa: str) -> None:
    kv, spec, qkv, tables = case(16, 4, 2, 64, None, None)
    qkv[7] = 0.0
    qkv[8] *= np.float32(1e-38)  # too small for a scale: zeros
    qkv[9] *= np.float32(1e6)
    qkv[9, : spec.num_heads * spec.head_dim] = 0.0
    steps = [attention_step(tables, 16, [(0, 0, 9)])]
    exact = attend(reference(kv), qkv, spec, steps)[0]
    ours = attend(cpu(isa, kv=replace(kv, dtype="int8")), qkv, spec, steps)[0]
    assert relative_error(ours, exact) < 0.02


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_infinite_key_or_value_shows_in_rows_that_see_it_and_in_no_other(isa: str, dtype: str) -> None:
    kv, spec, qkv, tables = case(16, 4, 2, 32, 20, None)
    tiny = qkv * np.float32(1e-30)
    overflowing = tiny.copy()
    overflowing[40, spec.num_heads * spec.head_dim :] = np.float32(1e15)
    steps = [attention_step(tables, 16, [(0, 0, 100)])]
    backend = cpu(isa, 2, kv=replace(kv, dtype=dtype))
    clean = attend(backend, tiny, spec, steps, factor=1e30)[0]
    spoilt = attend(backend, overflowing, spec, steps, factor=1e30)[0]
    sees = np.zeros(100, bool)
    sees[40:60] = True
    assert (~np.isfinite(spoilt[sees])).any(axis=1).all()
    assert spoilt[~sees].tobytes() == clean[~sees].tobytes()


@pytest.mark.parametrize("isa", ISAS)
def test_a_sum_that_rounds_to_minus_zero_is_the_same_with_and_without_a_later_split(isa: str) -> None:
    spec = AttentionSpec(0, 1, 1, 16, 1.0)
    qkv = np.zeros((257, 48), np.float32)
    qkv[:, 0] = 1.0
    qkv[0, 16] = 1.0  # of all keys the first scores highest
    qkv[1:, 32:] = -1e-45  # the least float: less of it is -0
    tables = np.arange(17, dtype=np.int32)[None]
    steps = [attention_step(tables, 16, [(0, 0, length)]) for length in (256, 257)]
    alone, together = attend(cpu(isa, kv=KVCacheSpec(1, 17, 1, 16, 16, "float32")), qkv, spec, steps)
    assert alone.tobytes() == together[:256].tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_copied_blocks_hold_the_same_keys_and_values(dtype: str) -> None:
    kv, spec, qkv, tables = case(16, 4, 2, 32, None, None)
    moved = tables.copy()
    moved[0, :4] = tables[1, 5:9]
    for backend in (cpu(kv=replace(kv, dtype=dtype)), reference(replace(kv, dtype=dtype))):
        first = attend(backend, qkv, spec, [attention_step(tables, 16, [(0, 0, 64), (1, 0, 1)])])[0]
        backend.copy_blocks(list(zip(tables[0, :4].tolist(), moved[0, :4].tolist(), strict=True)))
        last = attend(backend, qkv, spec, [attention_step(moved, 16, [(0, 63, 1)])])[0]
        assert last[0].tobytes() == first[63].tobytes()
