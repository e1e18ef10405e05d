"""Blocks of rows that pass through a tape at their own pace, on several threads: the bytes of one thread, op by op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.ops.harness import MAX_POSITION, AnyOps, FunctionModel, cpu, float_tensor, step

from octavo.ops.arrays import F32
from octavo.ops.interface import AttentionSpec, KVCacheSpec, StepInputs
from octavo.ops.registry import AnyBackend

NUM_LAYERS, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 5, 4, 2, 16
HIDDEN = NUM_HEADS * HEAD_DIM
KV_WIDTH = NUM_KV_HEADS * HEAD_DIM
MAX_BLOCKS = 24
"""Blocks of a sequence."""
KV = KVCacheSpec(NUM_LAYERS, 16 * MAX_BLOCKS, NUM_KV_HEADS, 16, HEAD_DIM, "float16")
STEPS: tuple[tuple[list[int], list[int]], ...] = (
    ([130], [0]),
    ([130, 70, 33, 9, 1], [130, 0, 0, 0, 0]),
    ([1, 1, 1, 1, 1, 90], [260, 70, 33, 9, 1, 0]),
    ([1] * 6 + [40, 40], [261, 71, 34, 10, 2, 90, 0, 0]),
)
"""New tokens and first positions of the sequences of each step."""


def make_forward(backend: AnyBackend, windows: tuple[int | None, ...]) -> Callable[[AnyOps], Any]:
    rng = np.random.default_rng(0)
    table = backend.parameters.load_linear([float_tensor(rng.standard_normal((400, HIDDEN), np.float32))], [None])

    def linear(rows: int, cols: int) -> object:
        return backend.parameters.load_linear([float_tensor(rng.standard_normal((rows, cols), np.float32) * 0.2)], [None])

    layers = [
        (linear(HIDDEN + 2 * KV_WIDTH, HIDDEN), linear(HIDDEN, HIDDEN), linear(256, HIDDEN), linear(HIDDEN, 128))
        for _ in range(NUM_LAYERS)
    ]
    norm = backend.parameters.load_vector(float_tensor(np.ones(HIDDEN, np.float32)))

    def forward(ops: AnyOps) -> Any:
        x = ops.embedding(table)
        for index, (qkv, out, gate_up, down) in enumerate(layers):
            spec = AttentionSpec(index, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, HEAD_DIM**-0.5, window=windows[index % len(windows)])
            q, k, v = ops.split(ops.linear(ops.rms_norm(x, norm, 1e-5), qkv), [HIDDEN, KV_WIDTH, KV_WIDTH])
            ops.kv_write(k, v, spec)
            x = ops.add(x, ops.linear(ops.paged_attention(q, spec), out))
            x = ops.add(x, ops.linear(ops.silu_mul(ops.linear(ops.rms_norm(x, norm, 1e-5), gate_up)), down))
        return ops.select_rows(x)

    return forward


def inputs_of(lengths: list[int], firsts: list[int]) -> StepInputs:
    tables = np.random.default_rng(3).permutation(KV.num_blocks).astype(np.int32).reshape(-1, MAX_BLOCKS)
    token_ids = (np.arange(sum(lengths), dtype=np.int32) * 7 + firsts[0]) % 400
    return step(lengths, firsts, token_ids, np.ascontiguousarray(tables[: len(lengths)]))


def results(threads: int, eager: bool, windows: tuple[int | None, ...]) -> list[F32]:
    backend = cpu("auto", threads, quantization="int8", kv=KV)
    model = FunctionModel(make_forward(backend, windows))
    program = backend.compile(model, max_tokens=256, max_logits=256, max_position=MAX_POSITION, eager=eager)
    return [backend.read_logits(program.run(inputs_of(lengths, firsts))).copy() for lengths, firsts in STEPS]


@pytest.mark.parametrize("windows", [(None,), (40, 40, None)], ids=["whole", "windows"])
def test_blocks_at_their_own_pace_give_the_bytes_of_one_thread(windows: tuple[int | None, ...]) -> None:
    plain = results(1, True, windows)
    for threads in (2, 3, 4):
        for _ in range(5):  # who is faster differs from run to run
            for index, result in enumerate(results(threads, False, windows)):
                assert result.tobytes() == plain[index].tobytes(), f"step {index} on {threads} threads"


def test_a_prompt_meets_no_barrier_between_its_layers() -> None:
    backend = cpu("auto", 2, quantization="int8", kv=KV)
    program = backend.compile(
        FunctionModel(make_forward(backend, (None,))),
        max_tokens=256,
        max_logits=256,
        max_position=MAX_POSITION,
        eager=False,
    )
    program.start_profile()
    program.run(inputs_of(*STEPS[0]))
    waits = [cost.runs for cost in program.profile() if cost.label.startswith("waiting")]
    assert waits == [2], "all layers together, then the rows whose output is wanted"


def test_attention_behind_selected_rows_gives_the_bytes_of_one_thread() -> None:
    def results_of(threads: int, eager: bool) -> list[F32]:
        backend = cpu("auto", threads, quantization="int8", kv=KV)
        rng = np.random.default_rng(1)
        shapes = [(400, HIDDEN)] + [(HIDDEN + 2 * KV_WIDTH, HIDDEN)] * 4
        table, *layers = [
            backend.parameters.load_linear([float_tensor(rng.standard_normal(shape, np.float32))], [None]) for shape in shapes
        ]

        def forward(ops: AnyOps) -> Any:
            x, early = ops.embedding(table), None
            for index, qkv in enumerate(layers):
                early = ops.select_rows(x) if index == 2 else early
                spec = AttentionSpec(index, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, HEAD_DIM**-0.5)
                q, k, v = ops.split(ops.linear(x, qkv), [HIDDEN, KV_WIDTH, KV_WIDTH])
                ops.kv_write(k, v, spec)
                x = ops.add(x, ops.paged_attention(q, spec))
            return ops.add(early, ops.select_rows(x))

        program = backend.compile(
            FunctionModel(forward), max_tokens=256, max_logits=256, max_position=MAX_POSITION, eager=eager
        )
        return [backend.read_logits(program.run(inputs_of(*arrays))).copy() for arrays in STEPS]

    for ours, plain in zip(results_of(2, False), results_of(1, True), strict=True):
        assert ours.tobytes() == plain.tobytes()
