"""Moves between KV cache and swap space: every byte of a block comes back, from memory and file, for every KV type."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ops.harness import BLOCK_SIZE, KV, AnyOps, cpu, float_tensor, reference, run

from octavo.errors import ConfigError
from octavo.ops.arrays import F32
from octavo.ops.cpu.backend import CpuBackend
from octavo.ops.interface import AttentionSpec, KVCacheSpec, StepInputs
from octavo.ops.reference.backend import ReferenceBackend
from octavo.ops.registry import AnyBackend
from octavo.worker.swap_file import HEADER_BYTES
from octavo.worker.swap_store import FileStore, SwapStore

DTYPES = ("float32", "float16", "bfloat16", "int8")


def spec_of(dtype: str) -> KVCacheSpec:
    return KVCacheSpec(num_layers=3, num_blocks=6, num_kv_heads=2, block_size=8, head_dim=16, dtype=dtype)


def space_of(backend: AnyBackend, where: str, folder: Path, num_bytes: int, slot_bytes: int) -> SwapStore:
    space = SwapStore(backend, slot_bytes, str(folder / "swap") if where == "file" else None, num_threads=2)
    space.resize(num_bytes)
    return space


def block_bytes(spec: KVCacheSpec) -> int:
    vector = {"float32": 64, "float16": 32, "bfloat16": 32, "int8": 20}[spec.dtype]
    return 2 * spec.num_layers * spec.num_kv_heads * spec.block_size * vector


@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_reference_returns_every_byte_of_a_block(dtype: str, where: str, tmp_path: Path) -> None:
    backend, rng = ReferenceBackend(), np.random.default_rng(7)
    backend.allocate_kv_cache(spec_of(dtype))
    cache = backend._ops.cache
    assert cache is not None
    for layer in range(3):
        slots = np.arange(48, dtype=np.int32)
        inputs = StepInputs(slots, slots, slots, slots, slots, slots.reshape(1, -1), slots)
        keys, values = rng.standard_normal((2, 48, 32)).astype(np.float32)
        cache.write(keys, values, inputs, layer)
    before = [cache.read_block(block) for block in range(6)]
    assert len(set(before)) == 6
    space = space_of(backend, where, tmp_path, 4 * len(before[0]), block_bytes(spec_of(dtype)))
    assert space.out([(5, 0), (2, 3)]) == {}
    assert space.into([(0, 3), (2, 0), (1, 3)]) == {}
    assert [cache.read_block(block) for block in range(6)] == [before[i] for i in (2, 2, 5, 3, 4, 5)]


def backends() -> list[AnyBackend]:
    return [ReferenceBackend(), CpuBackend(2)]


@pytest.mark.parametrize("index", [0, 1], ids=["reference", "cpu"])
def test_moves_that_cannot_be_made_name_slot_and_block_with_the_reason(index: int, tmp_path: Path) -> None:
    backend = backends()[index]
    backend.allocate_kv_cache(spec_of("float32"))
    space = space_of(backend, "file", tmp_path, 8 * block_bytes(spec_of("float32")), block_bytes(spec_of("float32")))
    file = tmp_path / "swap"
    os.truncate(file, HEADER_BYTES)
    assert space.into([(4, 1)]) == {4: "Input/output error"}, "the file ends before the slot"
    assert space.shift([(1, 2)]) == {2: "Input/output error"}
    assert space.out([(1, 2), (3, 1)]) == {} and space.into([(4, 2), (5, 7), (0, 1)]) == {5: "Input/output error"}
    store = space._store
    assert isinstance(store, FileStore) and store._file is not None
    real, store._file.descriptor = store._file.descriptor, os.open(file, os.O_RDONLY)
    assert space.out([(1, 0), (2, 5)]) == {0: "Bad file descriptor", 5: "Bad file descriptor"}
    os.close(store._file.descriptor)
    store._file.descriptor = real


@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("index", [0, 1], ids=["reference", "cpu"])
def test_slots_that_are_not_there_are_refused(index: int, where: str, tmp_path: Path) -> None:
    backend, size = backends()[index], block_bytes(spec_of("int8"))
    backend.allocate_kv_cache(spec_of("int8"))
    space = space_of(backend, where, tmp_path, 2 * size, size)
    assert space.out([(5, 1)]) == {}
    for move in ((0, 2), (0, -1)):
        with pytest.raises(ValueError, match="beyond the swap space of 2 slots"):
            space.out([move])
        with pytest.raises(ValueError, match="beyond the swap space of 2 slots"):
            space.into([move])
    for shift in ((2, 0), (0, 2), (-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="beyond the swap space of 2 slots"):
            space.shift([shift])
    assert space.into([(4, 1)]) == {}


@pytest.mark.parametrize("where", ["memory", "file"])
def test_the_native_core_refuses_blocks_and_rows_that_are_not_there(where: str, tmp_path: Path) -> None:
    backend, size = CpuBackend(1), block_bytes(spec_of("int8"))
    backend.allocate_kv_cache(spec_of("int8"))
    space = space_of(backend, where, tmp_path, 2 * size, size)
    for block in (6, -1):
        with pytest.raises(ValueError, match="a move names a block"):
            space.out([(block, 0)])
        with pytest.raises(ValueError, match="a move names a block"):
            space.into([(block, 0)])
    for row in (2, -1):
        with pytest.raises(ValueError, match="a move names a row"):
            backend.blocks_to_host([(0, row)], np.empty((2, size), np.uint8))
    with pytest.raises(ValueError, match="as large as a block"):
        backend.blocks_from_host([(0, 0)], np.empty((2, size + 1), np.uint8))


def test_memory_that_cannot_be_had_is_refused_and_the_space_stays() -> None:
    backend, size = CpuBackend(1), block_bytes(spec_of("int8"))
    backend.allocate_kv_cache(spec_of("int8"))
    for num_bytes in (2**60, 2**70):
        space = SwapStore(backend, size)
        with pytest.raises(ConfigError, match="cannot be allocated") as refused:
            space.resize(num_bytes)
        assert refused.value.param == "swap_space" and space.num_bytes == 0
    space.resize(2 * size)
    assert space.out([(5, 1)]) == {}
    with pytest.raises(ConfigError, match="cannot be allocated"):
        space.resize(2**60)
    assert space.num_bytes == 2 * size and space.into([(4, 1)]) == {}, "it is as it was"


@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_attention_over_blocks_that_were_moved_is_equal_to_the_bit(device: str, dtype: str, where: str, tmp_path: Path) -> None:
    """Two blocks are moved out, overwritten, moved back to other places: the tokens behind them see the same."""
    spec = replace(KV, dtype=dtype)
    qkv = np.random.default_rng(11).standard_normal((96, 6 * 16)).astype(np.float32)
    moved, plain = (cpu(kv=spec, threads=2), cpu(kv=spec)) if device == "cpu" else (reference(spec), reference(spec))
    space = space_of(moved, where, tmp_path, 2**20, block_bytes(spec))
    attend(moved, qkv, [0, 1], 0, 32)
    assert space.out([(0, 3), (1, 0)]) == {}
    attend(moved, qkv, [0, 1], 48, 32, position=0)
    assert space.into([(4, 3), (2, 0)]) == {}
    attend(plain, qkv, [7, 8], 0, 32)
    assert np.array_equal(attend(moved, qkv, [4, 2, 5], 32, 9), attend(plain, qkv, [7, 8, 9], 32, 9))


@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_what_lies_in_a_space_that_grows_and_shrinks_is_equal_to_the_bit(device: str, where: str, tmp_path: Path) -> None:
    """One block stays in its slot, the other is moved into a low one before its slot goes."""
    qkv = np.random.default_rng(12).standard_normal((96, 6 * 16)).astype(np.float32)
    slot_bytes = block_bytes(KV)
    resized, plain = (cpu(threads=2), cpu()) if device == "cpu" else (reference(), reference())
    space = space_of(resized, where, tmp_path, 4 * slot_bytes, slot_bytes)
    attend(resized, qkv, [0, 1], 0, 32)
    assert space.out([(1, 0)]) == {}
    space.resize(5000 * slot_bytes)
    assert space.out([(0, 4999), (1, 3)]) == {}
    assert space.shift([(4999, 1)]) == {}
    space.resize(2 * slot_bytes)
    attend(resized, qkv, [0, 1], 48, 32, position=0)
    assert space.into([(4, 1), (2, 0)]) == {}
    attend(plain, qkv, [7, 8], 0, 32)
    assert np.array_equal(attend(resized, qkv, [4, 2, 5], 32, 9), attend(plain, qkv, [7, 8, 9], 32, 9))
    space.resize(0)
    space.resize(slot_bytes)
    assert space.out([(4, 0)]) == {} and space.into([(9, 0)]) == {}
    assert np.array_equal(attend(resized, qkv, [9, 2, 5], 32, 9), attend(plain, qkv, [7, 8, 9], 32, 9))


def attend(backend: AnyBackend, qkv: F32, blocks: list[int], first: int, count: int, position: int | None = None) -> F32:
    """Rows first.. of qkv [tokens, (2 + 2 * 2) * 16] as tokens at `position` (first, unless given) of a sequence in blocks."""
    table = backend.parameters.load_linear([float_tensor(qkv)], [None])
    attention = AttentionSpec(layer=0, num_heads=2, num_kv_heads=2, head_dim=16, scale=0.25)
    start = first if position is None else position
    tables = np.array([blocks], np.int32)
    positions = np.arange(start, start + count, dtype=np.int32)
    inputs = StepInputs(
        token_ids=np.arange(first, first + count, dtype=np.int32),
        positions=positions,
        slot_mapping=tables[0, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE,
        query_start=np.array([0, count], np.int32),
        first_position=np.array([start], np.int32),
        block_tables=tables,
        logit_rows=np.arange(count, dtype=np.int32),
    )

    def forward(ops: AnyOps) -> Any:
        q, k, v = ops.split(ops.embedding(table), [32, 32, 32])
        ops.kv_write(k, v, attention)
        return ops.paged_attention(q, attention)

    return run(backend, forward, inputs)
