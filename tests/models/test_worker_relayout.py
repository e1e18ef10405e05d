"""A worker that is reconfigured between steps: the same tokens and logprobs, whatever the keys and values are stored as."""

from __future__ import annotations

import pytest
from tests.tiny_models import prompt
from tests.worker_driver import BLOCK_SIZE, NUM_BLOCKS, Driver, Request, make_worker, tiny_checkpoint

from octavo.errors import ConfigError
from octavo.loader.checkpoint import Checkpoint
from octavo.ops.interface import KVCacheSpec
from octavo.ops.registry import make_backend
from octavo.sampling_params import SamplingParams
from octavo.step import Relayout

LENGTHS = (1, 15, 16, 33, 90)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return tiny_checkpoint(tmp_path_factory.mktemp("model"), "llama-gqa")


def requests() -> list[Request]:
    return [
        Request(prompt("relayout", length), SamplingParams(temperature=0.8, logprobs=2, repetition_penalty=1.1), seed=length)
        for length in LENGTHS
    ]


def relayout(driver: Driver, tables: dict[int, list[int]], block_size: int) -> dict[int, list[int]]:
    """Reconfigure to blocks of another size, ids in falling order; returns the new tables."""
    worker = driver.worker
    old_size, num_blocks = worker.batch.block_size, NUM_BLOCKS * BLOCK_SIZE // block_size
    new = {
        seq_id: [num_blocks - 1 - seq_id * (num_blocks // len(LENGTHS)) - i for i in range(200 // block_size)]
        for seq_id in tables
    }
    moves = []
    for seq_id, table in tables.items():
        end = driver.requests[seq_id].num_computed
        for position in range(end):  # token by token: every run is inside a block
            source = table[position // old_size] * old_size + position % old_size
            moves.append((source, new[seq_id][position // block_size] * block_size + position % block_size, 1))
    worker.reconfigure(Relayout(block_size, num_blocks, 9, 128, moves, new))
    return new


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("kv_cache_dtype", ["float32", "float16", "bfloat16", "int8"])
def test_tokens_move_bit_by_bit(checkpoint: Checkpoint, device: str, kv_cache_dtype: str) -> None:
    expected = Driver(make_worker(checkpoint, device, kv_cache_dtype), requests()).run(10)
    driver = Driver(make_worker(checkpoint, device, kv_cache_dtype), requests())
    driver.run(3)
    batch = driver.worker.batch
    tables = {seq_id: batch.blocks(batch._states[seq_id]).tolist() for seq_id in range(len(LENGTHS))}
    for block_size, num_tokens in ((32, 5), (16, 7), (8, 8), (24, 10)):
        tables = relayout(driver, tables, block_size)
        outcomes = driver.run(num_tokens, chunk=64)
    assert outcomes == expected


def test_a_worker_whose_new_program_fails_goes_on_as_before(checkpoint: Checkpoint) -> None:
    expected = Driver(make_worker(checkpoint), requests()).run(6)
    driver = Driver(make_worker(checkpoint), requests())
    driver.run(3)
    with pytest.raises(ValueError, match="block table of sequence 0 does not fit 64 blocks"):
        driver.worker.reconfigure(Relayout(16, 64, 9, 128, [], {0: [64]}))
    assert driver.run(6) == expected


def test_a_sequence_without_a_table_is_forgotten(checkpoint: Checkpoint) -> None:
    driver = Driver(make_worker(checkpoint), requests())
    driver.run(1)
    driver.worker.reconfigure(Relayout(16, 64, 9, 128, [], {2: [0, 1]}))
    assert len(driver.worker.batch) == 1 and 2 in driver.worker.batch


@pytest.mark.parametrize(
    "run", [(0, 0, 0), (0, 0, 9), (4, 0, 5), (0, 12, 5), (-1, 0, 1), (32, 0, 1), (0, 32, 1), (0, -1, 1), (0, 0, 2**31 - 1)]
)
def test_the_native_cache_refuses_runs_that_leave_their_block(run: tuple[int, int, int]) -> None:
    backend = make_backend("cpu", num_threads=1, isa="auto", dtype="auto", quantization="auto")
    backend.allocate_kv_cache(KVCacheSpec(2, 4, 1, 8, 16, "float32"))
    previous = backend.replace_kv_cache(KVCacheSpec(2, 2, 1, 16, 16, "float32"))
    with pytest.raises(ValueError, match="leaves its block"):
        backend.move_tokens(previous, [run])
    backend.move_tokens(previous, [(0, 8, 8)])
    with pytest.raises(ValueError, match="taken from before"):
        backend.move_tokens(previous, [])


def test_memory_that_cannot_be_had_is_refused_and_the_cache_stays() -> None:
    backend = make_backend("cpu", num_threads=1, isa="auto", dtype="auto", quantization="auto")
    backend.allocate_kv_cache(KVCacheSpec(1, 4, 1, 8, 16, "float32"))
    with pytest.raises(ConfigError, match="cannot be allocated"):
        backend.replace_kv_cache(KVCacheSpec(1, 2**31 - 1, 2**10, 128, 256, "float32"))
    backend.copy_blocks([(0, 3)])
