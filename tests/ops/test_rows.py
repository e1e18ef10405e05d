"""Norms, rope, activations, sums of the native backend against the reference backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.ops.harness import (
    ISAS,
    MAX_POSITION,
    ROPE,
    AnyOps,
    FunctionModel,
    cpu,
    float_tensor,
    reference,
    relative_error,
    rows_op,
    run,
    step,
)

from octavo.config.model import RopeConfig
from octavo.ops.arrays import F32
from octavo.ops.interface import FLOAT_TOLERANCE
from octavo.ops.registry import AnyBackend

Op = Callable[[AnyOps, Any], Any]


def both(isa: str, x: F32, make: Callable[[AnyBackend], Op]) -> tuple[F32, F32]:
    native, plain = cpu(isa), reference()
    return rows_op(native, x, make(native)), rows_op(plain, x, make(plain))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("columns", "group"), [(64, 64), (48, 16), (37, 37), (192, 64)])
def test_rms_norm_equals_reference_whole_and_by_head(isa: str, columns: int, group: int) -> None:
    rng = np.random.default_rng(columns)
    x, weight = rng.standard_normal((11, columns), np.float32), rng.standard_normal(group).astype(np.float32)

    def make(backend: AnyBackend) -> Op:
        vector = backend.parameters.load_vector(float_tensor(weight), 1.0)
        return lambda ops, t: ops.rms_norm(t, vector, 1e-6)

    native, plain = both(isa, x, make)
    assert relative_error(native, plain) < FLOAT_TOLERANCE


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", ["silu_mul", "gelu_mul"])
def test_gated_activations_equal_reference(isa: str, name: str) -> None:
    x = np.random.default_rng(0).standard_normal((9, 74), np.float32) * 4
    x[0, :8] = [100.0, -100.0, 0.0, -0.0, 30.0, -30.0, 1e-30, 88.0]
    native, plain = both(isa, x, lambda _: lambda ops, t: getattr(ops, name)(t))
    assert relative_error(native, plain) < FLOAT_TOLERANCE


@pytest.mark.parametrize("isa", ISAS)
def test_softcap_add_and_split_equal_reference(isa: str) -> None:
    x = np.random.default_rng(0).standard_normal((9, 70), np.float32) * 40

    def make(_: AnyBackend) -> Op:
        def op(ops: AnyOps, t: Any) -> Any:
            left, right = ops.split(t, [35, 35])
            return ops.add(ops.softcap(left, 30.0), right)

        return op

    native, plain = both(isa, x, make)
    assert relative_error(native, plain) < FLOAT_TOLERANCE


@pytest.mark.parametrize("isa", ISAS)
def test_scale_equals_reference_to_the_bit(isa: str) -> None:
    x = np.random.default_rng(0).standard_normal((9, 70), np.float32) * 40
    native, plain = both(isa, x, lambda _: lambda ops, t: ops.scale(t, 0.3))
    assert native.tobytes() == plain.tobytes()
    assert np.array_equal(native, x * np.float32(0.3))


def turned(table: Any, rope: RopeConfig) -> Callable[[AnyOps], Any]:
    """The step's tokens in heads of 16 columns, turned by their positions."""
    return lambda ops: ops.rope(ops.embedding(table), rope, 16)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rotary_dim", [16, 8])
def test_rope_equals_reference_also_when_it_turns_part_of_a_head(isa: str, rotary_dim: int) -> None:
    x = np.random.default_rng(0).standard_normal((40, 48), np.float32)
    inputs = step([40], [200])
    results = []
    for backend in (cpu(isa), reference()):
        table = backend.parameters.load_linear([float_tensor(x)], [None])
        rope = RopeConfig(rotary_dim=rotary_dim, theta=500.0)
        results.append(run(backend, turned(table, rope), inputs))
    assert relative_error(*results) < FLOAT_TOLERANCE


@pytest.mark.parametrize("isa", ISAS)
def test_tape_eager_and_threads_give_the_same_bytes(isa: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((37, 64), np.float32)
    w_in, w_out = rng.standard_normal((128, 64), np.float32), rng.standard_normal((64, 64), np.float32)
    norm = rng.standard_normal(64).astype(np.float32)
    results = []
    for threads in (1, 2, 3):
        for eager in (False, True):
            for quantization in ("none", "int8"):
                backend = cpu(isa, threads, quantization=quantization)
                weights = [backend.parameters.load_linear([float_tensor(w)], [None]) for w in (w_in, w_out)]
                vector = backend.parameters.load_vector(float_tensor(norm))

                def op(ops: AnyOps, t: Any, weights=weights, vector=vector) -> Any:  # type: ignore[no-untyped-def]
                    h = ops.linear(ops.rms_norm(t, vector, 1e-5), weights[0])
                    t = ops.add(t, ops.linear(ops.silu_mul(h), weights[1]))
                    return ops.scale(ops.add(ops.rope(t, ROPE, 16), t), 0.3)

                results.append((quantization, rows_op(backend, x, op, eager)))
    for kind in ("none", "int8"):
        same = [result for quantization, result in results if quantization == kind]
        assert all(result.tobytes() == same[0].tobytes() for result in same)


@pytest.mark.parametrize("eager", [False, True])
def test_a_step_larger_than_the_program_is_refused(eager: bool) -> None:
    backend = cpu()
    table = backend.parameters.load_linear([float_tensor(np.ones((8, 16), np.float32))], [None])
    model = FunctionModel(lambda ops: ops.select_rows(ops.embedding(table)))
    program = backend.compile(model, max_tokens=3, max_logits=3, max_position=MAX_POSITION, eager=eager)
    assert backend.read_logits(program.run(step([3]))).shape == (3, 16)
    with pytest.raises(ValueError, match="larger than the program"):
        program.run(step([4]))
