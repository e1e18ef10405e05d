"""Runs one op, or a few, on any backend: a model made of a function, a step made of plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from octavo import _native
from octavo.config.model import RopeConfig
from octavo.loader.formats import bytes_per_row
from octavo.loader.stored import StoredRows
from octavo.ops.arrays import F32, I32
from octavo.ops.interface import KVCacheSpec, Ops, StepInputs, Tensor
from octavo.ops.registry import AnyBackend, make_backend

ISAS = tuple(_native.usable_isas())
BLOCK_SIZE = 16
KV = KVCacheSpec(num_layers=1, num_blocks=64, num_kv_heads=2, block_size=BLOCK_SIZE, head_dim=16, dtype="float32")

AnyOps: TypeAlias = Ops[Any, Any, Any]
ROPE = RopeConfig(rotary_dim=16)
MAX_POSITION = 1024


@dataclass
class FunctionModel:
    """A model whose forward pass is a function of ops."""

    function: Callable[[AnyOps], Any]

    def forward(self, ops: Ops[Tensor, Any, Any]) -> Tensor:
        return self.function(ops)  # type: ignore[no-any-return]


def cpu(
    isa: str = "auto",
    threads: int = 1,
    dtype: str = "auto",
    quantization: str = "auto",
    kv: KVCacheSpec = KV,
    group_size: int = 32,
) -> AnyBackend:
    backend = make_backend("cpu", num_threads=threads, isa=isa, dtype=dtype, quantization=quantization, group_size=group_size)
    backend.allocate_kv_cache(kv)
    return backend


def reference(kv: KVCacheSpec = KV) -> AnyBackend:
    backend = make_backend("reference", num_threads=1, isa="auto", dtype="auto", quantization="auto")
    backend.allocate_kv_cache(kv)
    return backend


def float_tensor(values: F32, name: str = "weight") -> StoredRows:
    """values [rows, columns] or [n] as a stored float32 tensor."""
    flat = np.ascontiguousarray(values, np.float32)
    data = flat.reshape(1, -1) if flat.ndim == 1 else flat
    return StoredRows(name, flat.shape, "f32", data.view(np.uint8), None, f"memory: {name}")


def block_tensor(rng: np.random.Generator, format: str, rows: int, columns: int) -> StoredRows:
    """Random bytes of a block format with tame scales: float16 fields are drawn from a small range."""
    data = rng.integers(0, 256, (rows, bytes_per_row(format, columns)), np.uint8)
    block, offsets = {
        "q8_0": (34, (0,)), "q4_0": (18, (0,)), "q4_1": (20, (0, 2)), "q5_0": (22, (0,)), "q5_1": (24, (0, 2)),
        "q2_k": (84, (80, 82)), "q3_k": (110, (108,)), "q4_k": (144, (0, 2)), "q5_k": (176, (0, 2)), "q6_k": (210, (208,)),
    }[format]  # fmt: skip
    blocks = data.reshape(rows, -1, block)
    for offset in offsets:
        scales = rng.uniform(0.001, 0.02, blocks.shape[:2]).astype(np.float16)
        blocks[:, :, offset : offset + 2] = scales[..., None].view(np.uint8)
    return StoredRows("weight", (rows, columns), format, data, None, "memory: weight")


def step(
    lengths: Sequence[int], firsts: Sequence[int] | None = None, token_ids: I32 | None = None, tables: I32 | None = None
) -> StepInputs:
    """One step of sequences with `lengths` new tokens at positions firsts (0 unless given); every row's output is wanted."""
    firsts = list(firsts) if firsts is not None else [0] * len(lengths)
    total = sum(lengths)
    if tables is None:
        per = max((first + length + BLOCK_SIZE - 1) // BLOCK_SIZE for first, length in zip(firsts, lengths, strict=True))
        tables = np.arange(len(lengths) * per, dtype=np.int32).reshape(len(lengths), per)
    positions = np.concatenate([np.arange(f, f + n, dtype=np.int32) for f, n in zip(firsts, lengths, strict=True)])
    rows = np.repeat(np.arange(len(lengths)), lengths)
    slots = tables[rows, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE
    return StepInputs(
        token_ids=np.arange(total, dtype=np.int32) if token_ids is None else token_ids,
        positions=positions,
        slot_mapping=slots.astype(np.int32),
        query_start=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
        first_position=np.array(firsts, np.int32),
        block_tables=np.ascontiguousarray(tables, np.int32),
        logit_rows=np.arange(total, dtype=np.int32),
    )


def run(backend: AnyBackend, function: Callable[[AnyOps], Any], inputs: StepInputs, eager: bool = False) -> F32:
    """The function's result for every row of the step, as a copy."""
    total = len(inputs.token_ids)
    model = FunctionModel(lambda ops: ops.select_rows(function(ops)))
    program = backend.compile(model, max_tokens=total, max_logits=total, max_position=MAX_POSITION, eager=eager)
    result: F32 = backend.read_logits(program.run(inputs)).copy()
    return result


def rows_op(backend: AnyBackend, x: F32, op: Callable[[AnyOps, Any], Any], eager: bool = False) -> F32:
    """op applied to the rows of x [rows, columns]; they enter as a float32 embedding table."""
    table = backend.parameters.load_linear([float_tensor(x)], [None])
    inputs = step([1] * len(x), tables=np.zeros((len(x), 1), np.int32))
    return run(backend, lambda ops: op(ops, ops.embedding(table)), inputs, eager)


def embedded(table: Any) -> Callable[[AnyOps], Any]:
    """The step's tokens, looked up in this table."""
    return lambda ops: ops.embedding(table)


def times(weight: Any) -> Callable[[AnyOps, Any], Any]:
    """The op that multiplies with this weight."""
    return lambda ops, x: ops.linear(x, weight)


def relative_error(value: F32, exact: F32) -> float:
    """Largest difference, relative to the largest magnitude of the row."""
    scale = np.abs(exact).max(axis=-1, keepdims=True) + 1e-30
    return float((np.abs(value - exact) / scale).max())
