"""What the op benchmarks share: a program made of a function, the arrays of a step, timing, options."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from octavo import _native
from octavo.config.machine import read_machine
from octavo.loader.stored import StoredRows
from octavo.ops.arrays import F32
from octavo.ops.interface import KVCacheSpec, Ops, Program, StepInputs, Tensor
from octavo.ops.registry import AnyBackend, make_backend

READ_BYTES = 256 << 20
"""Larger than the last-level caches of the machines we have seen."""

LONG_RUN_S = 1.0

AnyOps: TypeAlias = Ops[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class FunctionModel:
    """A model whose forward pass is a function of ops."""

    function: Callable[[AnyOps], Any]

    def forward(self, ops: Ops[Tensor, Any, Any]) -> Tensor:
        return self.function(ops)  # type: ignore[no-any-return]


def make_cpu(isa: str, threads: int, cache: KVCacheSpec) -> AnyBackend:
    backend = make_backend("cpu", num_threads=threads, isa=isa, dtype="auto", quantization="auto")
    backend.allocate_kv_cache(cache)
    return backend


def float_tensor(values: F32) -> StoredRows:
    """values [rows, columns] as a stored float32 tensor."""
    return StoredRows("values", values.shape, "f32", values.view(np.uint8), None, "memory: values")


def compile_program(backend: AnyBackend, function: Callable[[AnyOps], Any], max_tokens: int, max_position: int) -> Program[Any]:
    """A program that runs the function over all rows and hands out the last one, so that reading it costs nothing."""
    model = FunctionModel(lambda ops: ops.select_rows(function(ops)))
    return backend.compile(model, max_tokens=max_tokens, max_logits=1, max_position=max_position, eager=False)


def step(num_seqs: int, new: int, first: int, blocks_each: int, block_size: int) -> StepInputs:
    """num_seqs sequences with `new` tokens each from position first on; sequence i owns the i-th blocks_each blocks."""
    tables = np.arange(num_seqs * blocks_each, dtype=np.int32).reshape(num_seqs, blocks_each)
    positions = np.tile(np.arange(first, first + new, dtype=np.int32), num_seqs)
    rows = np.repeat(np.arange(num_seqs), new)
    total = num_seqs * new
    return StepInputs(
        token_ids=np.arange(total, dtype=np.int32),
        positions=positions,
        slot_mapping=(tables[rows, positions // block_size] * block_size + positions % block_size).astype(np.int32),
        query_start=np.arange(0, total + 1, new, dtype=np.int32),
        first_position=np.full(num_seqs, first, np.int32),
        block_tables=tables,
        logit_rows=np.array([total - 1], np.int32),
    )


def median_seconds(program: Program[Any], inputs: StepInputs, budget_s: float) -> float:
    """Median time of a run, from as many as fit the budget after one that warms up: three at least, one if it takes long."""
    program.run(inputs)
    seconds: list[float] = []
    end_s = time.perf_counter() + budget_s
    while not seconds or (len(seconds) < 3 and seconds[-1] < LONG_RUN_S) or time.perf_counter() < end_s:
        start_s = time.perf_counter()
        program.run(inputs)
        seconds.append(time.perf_counter() - start_s)
    return statistics.median(seconds)


def streaming_read_gb_s(threads: int, repeats: int = 5) -> float:
    """Bytes per second that `threads` threads read from memory together: the best of several numpy reductions.

    An estimate from below of what the machine can stream: numpy's loops may themselves be slower than the memory.
    """
    parts = np.array_split(np.ones(READ_BYTES // 8, np.float64), threads)
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for reduction in (np.add.reduce, np.maximum.reduce, lambda part: np.dot(part, part)):
            for _ in range(repeats):
                start_s = time.perf_counter()
                list(pool.map(reduction, parts))
                best = max(best, READ_BYTES / (time.perf_counter() - start_s) / 1e9)
    return best


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that all op benchmarks have."""
    usable = _native.usable_isas()
    options = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    options.add_argument("--threads", type=int, default=read_machine().num_cpus)
    options.add_argument("--isa", nargs="+", choices=usable, default=usable, help="kernel variants (default: all usable here)")
    options.add_argument("--seconds", type=float, default=0.15, help="time per figure (default 0.15)")
    options.add_argument("--json", action="store_true", help="print one line of JSON instead of a table")
    return options
