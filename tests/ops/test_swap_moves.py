"""Moves between KV cache and swap space: every byte of a block comes back, from memory and file, for every KV type."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.ops.harness import BLOCK_SIZE, KV, cpu, float_tensor, reference, run

from octavo.errors import ConfigError
from octavo.ops.cpu.backend import CpuBackend
from octavo.ops.interface import F32, AttentionSpec, Backend, KVCacheSpec, Ops, StepInputs, Tensor
from octavo.ops.reference.attention import KVCache
from octavo.ops.reference.backend import ReferenceBackend
from octavo.ops.reference.swap import SwapSpace

DTYPES = ("float32", "float16", "bfloat16", "int8")


def spec_of(dtype: str) -> KVCacheSpec:
    return KVCacheSpec(num_layers=3, num_blocks=6, num_kv_heads=2, block_size=8, head_dim=16, dtype=dtype)


def descriptor_of(where: str, folder: Path) -> int | None:
    return os.open(folder / "swap", os.O_RDWR | os.O_CREAT, 0o600) if where == "file" else None


@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_reference_returns_every_byte_of_a_block(dtype: str, where: str, tmp_path: Path) -> None:
    cache, rng = KVCache(spec_of(dtype)), np.random.default_rng(7)
    for layer in range(3):
        slots = np.arange(48, dtype=np.int32)
        inputs = StepInputs(slots, slots, slots, slots, slots, slots.reshape(1, -1), slots)
        keys, values = rng.standard_normal((2, 48, 32)).astype(np.float32)
        cache.write(keys, values, inputs, layer)
    before = [cache.read_block(block) for block in range(6)]
    assert len(set(before)) == 6
    descriptor = descriptor_of(where, tmp_path)
    space = SwapSpace(4 * len(before[0]), descriptor, 100)
    assert space.out(cache, [(5, 0), (2, 3)]) == {}
    assert space.into(cache, [(0, 3), (2, 0), (1, 3)]) == {}
    assert [cache.read_block(block) for block in range(6)] == [before[i] for i in (2, 2, 5, 3, 4, 5)]
    if descriptor is not None:
        os.close(descriptor)


def backends() -> list[Backend]:
    return [ReferenceBackend(), CpuBackend(2)]


@pytest.mark.parametrize("index", [0, 1], ids=["reference", "cpu"])
def test_moves_that_cannot_be_made_name_slot_and_block_with_the_reason(index: int, tmp_path: Path) -> None:
    backend = backends()[index]
    backend.allocate_kv_cache(spec_of("float32"))
    (tmp_path / "swap").write_bytes(b"")
    descriptor = os.open(tmp_path / "swap", os.O_RDONLY)
    backend.allocate_swap_space(2**20, descriptor, 4096)
    assert backend.swap_out([(1, 0), (2, 5)]) == {0: "Bad file descriptor", 5: "Bad file descriptor"}
    assert backend.swap_in([(4, 1)]) == {4: "Input/output error"}, "the file ends before the slot"
    os.close(descriptor)


def test_the_native_core_refuses_blocks_and_slots_that_are_not_there() -> None:
    backend = CpuBackend(1)
    backend.allocate_kv_cache(spec_of("int8"))
    backend.allocate_swap_space(2 * 3 * 2 * 2 * 8 * 20, None, 0)
    assert backend.swap_out([(5, 1)]) == {}
    for move in ((6, 0), (-1, 0), (0, 2), (0, -1)):
        with pytest.raises(ValueError, match="a move names"):
            backend.swap_out([move])
    for shift in ((2, 0), (0, 2), (-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="a move names"):
            backend.resize_swap_space(1, [shift])
    with pytest.raises(ConfigError, match="cannot be allocated") as refused:
        backend.resize_swap_space(2**60, [])
    assert refused.value.param == "swap_space" and backend.swap_in([(4, 1)]) == {}, "it is as it was"


@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_attention_over_blocks_that_were_moved_is_equal_to_the_bit(device: str, dtype: str, where: str, tmp_path: Path) -> None:
    """Two blocks are moved out, overwritten, moved back to other places: the tokens behind them see the same."""
    spec = replace(KV, dtype=dtype)
    qkv = np.random.default_rng(11).standard_normal((96, 6 * 16)).astype(np.float32)
    descriptor = descriptor_of(where, tmp_path)
    moved, plain = (cpu(kv=spec, threads=2), cpu(kv=spec)) if device == "cpu" else (reference(spec), reference(spec))
    moved.allocate_swap_space(2**20, descriptor, 4096)
    attend(moved, qkv, [0, 1], 0, 32)
    assert moved.swap_out([(0, 3), (1, 0)]) == {}
    attend(moved, qkv, [0, 1], 48, 32, position=0)
    assert moved.swap_in([(4, 3), (2, 0)]) == {}
    attend(plain, qkv, [7, 8], 0, 32)
    assert np.array_equal(attend(moved, qkv, [4, 2, 5], 32, 9), attend(plain, qkv, [7, 8, 9], 32, 9))
    if descriptor is not None:
        os.close(descriptor)


@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_what_lies_in_a_space_that_grows_and_shrinks_is_equal_to_the_bit(device: str, where: str, tmp_path: Path) -> None:
    """One block stays in its slot, the other is moved into a low one before its slot goes."""
    qkv = np.random.default_rng(12).standard_normal((96, 6 * 16)).astype(np.float32)
    descriptor, slot_bytes = descriptor_of(where, tmp_path), 2 * 2 * BLOCK_SIZE * 16 * 4
    resized, plain = (cpu(threads=2), cpu()) if device == "cpu" else (reference(), reference())
    resized.allocate_swap_space(4 * slot_bytes, descriptor, 4096)
    attend(resized, qkv, [0, 1], 0, 32)
    assert resized.swap_out([(1, 0)]) == {}
    assert resized.resize_swap_space(5000 * slot_bytes, []) == {}
    assert resized.swap_out([(0, 4999), (1, 3)]) == {}
    assert resized.resize_swap_space(2 * slot_bytes, [(4999, 1)]) == {}
    attend(resized, qkv, [0, 1], 48, 32, position=0)
    assert resized.swap_in([(4, 1), (2, 0)]) == {}
    attend(plain, qkv, [7, 8], 0, 32)
    assert np.array_equal(attend(resized, qkv, [4, 2, 5], 32, 9), attend(plain, qkv, [7, 8, 9], 32, 9))
    assert resized.resize_swap_space(0, []) == {} and resized.resize_swap_space(slot_bytes, []) == {}
    assert resized.swap_out([(4, 0)]) == {} and resized.swap_in([(9, 0)]) == {}
    assert np.array_equal(attend(resized, qkv, [9, 2, 5], 32, 9), attend(plain, qkv, [7, 8, 9], 32, 9))
    if descriptor is not None:
        os.close(descriptor)


def attend(backend: Backend, qkv: F32, blocks: list[int], first: int, count: int, position: int | None = None) -> F32:
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

    def forward(ops: Ops) -> Tensor:
        q, k, v = ops.split(ops.embedding(table), [32, 32, 32])
        ops.kv_write(k, v, attention)
        return ops.paged_attention(q, attention)

    return run(backend, forward, inputs)
