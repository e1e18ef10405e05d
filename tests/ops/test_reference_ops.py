"""The reference operations against formulas in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest

from octavo.config.model import RopeConfig
from octavo.errors import ConfigError, LoadError
from octavo.loader.formats import evaluate, quantise
from octavo.loader.stored import StoredRows, StoredTensor
from octavo.ops.arrays import F32
from octavo.ops.interface import AttentionSpec, KVCacheSpec, StepInputs
from octavo.ops.reference.activation import gelu_mul, silu_mul, softcap
from octavo.ops.reference.attention import KVCache
from octavo.ops.reference.backend import ReferenceBackend
from octavo.ops.reference.linear import DenseWeight, embedding, linear, load_vector
from octavo.ops.reference.norm import rms_norm
from octavo.ops.reference.ops import ReferenceOps
from octavo.ops.reference.rope import rope
from octavo.ops.rope_table import rope_table


def random(*shape: int, seed: int = 1) -> F32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def stored(values: F32, name: str = "w") -> StoredRows:
    data = np.ascontiguousarray(values, np.float32).view(np.uint8)
    return StoredRows(name, values.shape, "f32", data.reshape(-1, data.shape[-1]), None, f"file: {name}")


def load_linear(
    parts: Sequence[StoredTensor], biases: Sequence[StoredTensor | None], dtype: str, quantization: str
) -> DenseWeight:
    return ReferenceOps(dtype, quantization).load_linear(parts, biases)


def test_linear_is_the_matrix_product_plus_bias() -> None:
    x, weight = random(5, 64), DenseWeight(random(48, 64, seed=2), random(48, seed=3))
    expected = x.astype(np.float64) @ weight.values.T.astype(np.float64) + weight.bias
    assert np.abs(linear(x, weight) - expected).max() < 1e-5


def test_linear_gives_a_row_the_same_bytes_in_any_company() -> None:
    x, weight = random(37, 96), DenseWeight(random(100, 96, seed=2), None)
    together = linear(x, weight)
    for row in range(37):
        assert linear(x[row : row + 1], weight).tobytes() == together[row : row + 1].tobytes()


def test_load_linear_stacks_parts_and_fills_missing_biases_with_zeros() -> None:
    first, second, bias = random(3, 32), random(2, 32, seed=2), random(2, seed=3)
    weight = load_linear([stored(first), stored(second)], [None, stored(bias)], "auto", "auto")
    assert np.array_equal(weight.values, np.concatenate([first, second]))
    assert weight.bias is not None
    assert weight.bias.tolist() == [0, 0, 0, *bias.tolist()]


@pytest.mark.parametrize(("dtype", "rounded"), [("bfloat16", ml_dtypes.bfloat16), ("float16", np.float16)])
def test_load_linear_rounds_to_the_stored_dtype(dtype: str, rounded: type) -> None:
    values = random(4, 32)
    weight = load_linear([stored(values)], [None], dtype=dtype, quantization="auto")
    assert np.array_equal(weight.values, values.astype(rounded).astype(np.float32))


def test_load_linear_quantises_float_parts_for_int8() -> None:
    values = random(4, 64)
    weight = load_linear([stored(values)], [None], "auto", "int8")
    assert np.array_equal(weight.values, evaluate(quantise(values, "int8", 32)))
    with pytest.raises(LoadError, match="file: w: int8 needs a multiple of 32 columns"):
        load_linear([stored(random(4, 40))], [None], "auto", "int8")


def test_a_value_beyond_float16_is_refused_by_name() -> None:
    values = random(4, 32)
    values[1, 1] = 1e5
    with pytest.raises(LoadError, match="file: w: a value exceeds float16's 65504"):
        load_linear([stored(values)], [None], "float16", "auto")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused_by_name(bad: float) -> None:
    values = random(4, 32)
    values[2, 7] = bad
    with pytest.raises(LoadError, match="file: w: .*row 2, column 7"):
        load_linear([stored(values)], [None], "auto", "auto")
    with pytest.raises(LoadError, match="file: w"):
        load_vector(stored(values[2]))


def test_load_vector_adds_the_offset() -> None:
    assert load_vector(stored(np.array([-0.5, 0.25], np.float32)), 1.0).tolist() == [0.5, 1.25]


def test_embedding_takes_rows_times_scale() -> None:
    table = DenseWeight(random(10, 8), None)
    ids = np.array([3, 3, 9], np.int32)
    assert np.array_equal(embedding(table, ids, 2.0), table.values[ids] * 2)


def test_rms_norm_works_on_groups_of_the_weights_length() -> None:
    x, weight = random(3, 32), random(8, seed=2)
    groups = x.astype(np.float64).reshape(3, 4, 8)
    expected = groups / np.sqrt((groups**2).mean(-1, keepdims=True) + 1e-6) * weight
    assert np.abs(rms_norm(x, weight, 1e-6) - expected.reshape(3, 32)).max() < 1e-5


def test_activations_follow_their_formulas_far_out_too() -> None:
    gate = np.array([[-1000.0, -3.0, 0.0, 2.0, 1000.0]], np.float32)
    up = np.array([[2.0, 2.0, 2.0, 2.0, 2.0]], np.float32)
    wide = gate.astype(np.float64)
    silu = wide / (1 + np.exp(np.minimum(-wide, 700)))
    gelu = 0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))
    assert silu_mul(np.concatenate([gate, up], 1)) == pytest.approx(silu * 2, rel=1e-6)
    assert gelu_mul(np.concatenate([gate, up], 1)) == pytest.approx(gelu * 2, rel=1e-5, abs=1e-6)
    assert softcap(gate, 30.0) == pytest.approx(30 * np.tanh(wide / 30), rel=1e-6)


def test_rope_turns_pairs_of_halves_and_passes_the_rest() -> None:
    x, positions = random(4, 2 * 12), np.array([0, 5, 5, 9], np.int32)
    cosines, sines = rope_table(RopeConfig(rotary_dim=8), 10)
    found = rope(x, cosines, sines, positions, 12).reshape(4, 2, 12)
    heads = x.reshape(4, 2, 12)
    angle = positions[:, None, None] * 10000.0 ** -(np.arange(4) / 4)
    turned = (heads[..., :4] + 1j * heads[..., 4:8]) * np.exp(1j * angle)
    assert np.abs(found[..., :4] - turned.real).max() < 1e-6
    assert np.abs(found[..., 4:8] - turned.imag).max() < 1e-6
    assert np.array_equal(found[..., 8:], heads[..., 8:])


SPEC = KVCacheSpec(num_layers=2, num_blocks=9, num_kv_heads=2, block_size=8, head_dim=16, dtype="float32")


def step_inputs(starts: list[int], lengths: list[int], tables: list[list[int]]) -> StepInputs:
    """Shares of sequences: lengths[i] tokens from position starts[i], blocks tables[i]."""
    positions = np.concatenate([np.arange(start, start + length) for start, length in zip(starts, lengths, strict=True)])
    owner = np.repeat(np.arange(len(starts)), lengths)
    block_tables = np.array(tables, np.int32)
    slots = block_tables[owner, positions // 8] * 8 + positions % 8
    query_start = np.concatenate([[0], np.cumsum(lengths)])
    first = np.array(starts, np.int32)
    empty = np.zeros(0, np.int32)
    return StepInputs(
        empty, positions.astype(np.int32), slots.astype(np.int32), query_start.astype(np.int32), first, block_tables, empty
    )


@pytest.mark.parametrize("window", [None, 1, 7])
@pytest.mark.parametrize("cap", [None, 1.5])
def test_attention_is_causal_softmax_over_the_sequences_own_blocks(window: int | None, cap: float | None) -> None:
    spec = AttentionSpec(layer=1, num_heads=4, num_kv_heads=2, head_dim=16, scale=0.3, window=window, softcap=cap)
    lengths = [21, 9]
    q, k, v = random(30, 64), random(30, 32, seed=2), random(30, 32, seed=3)
    cache = KVCache(SPEC)
    inputs = step_inputs([0, 0], lengths, [[7, 2, 5], [0, 8, 0]])
    cache.write(k, v, inputs, 1)
    found = cache.attend(q, inputs, spec)
    first = 0
    for length in lengths:
        rows = slice(first, first + length)
        queries = q[rows].astype(np.float64).reshape(length, 4, 16)
        keys, values = (np.repeat(x[rows].astype(np.float64).reshape(length, 2, 16), 2, axis=1) for x in (k, v))
        scores = np.einsum("ihd,jhd->hij", queries, keys) * 0.3
        if cap is not None:
            scores = cap * np.tanh(scores / cap)
        distance = np.arange(length)[:, None] - np.arange(length)[None, :]
        scores[:, (distance < 0) | (distance >= (window or length))] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        expected = np.einsum("hij,jhd->ihd", weights, values).reshape(length, 64)
        assert np.abs(found[rows] - expected).max() < 1e-5
        first += length


def test_attention_gives_the_same_bytes_in_chunks_and_in_other_blocks() -> None:
    spec = AttentionSpec(layer=0, num_heads=4, num_kv_heads=2, head_dim=16, scale=0.25)
    q, k, v = random(20, 64), random(20, 32, seed=2), random(20, 32, seed=3)
    outputs = []
    for chunks, table in (([20], [1, 2, 3]), ([1, 12, 7], [8, 0, 4])):
        cache, first, pieces = KVCache(SPEC), 0, []
        for length in chunks:
            inputs = step_inputs([first], [length], [table])
            rows = slice(first, first + length)
            cache.write(k[rows], v[rows], inputs, 0)
            pieces.append(cache.attend(q[rows], inputs, spec))
            first += length
        outputs.append(np.concatenate(pieces).tobytes())
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(("dtype", "rounded"), [("bfloat16", ml_dtypes.bfloat16), ("float16", np.float16)])
def test_the_cache_rounds_keys_and_values_to_its_dtype(dtype: str, rounded: type) -> None:
    spec = AttentionSpec(layer=0, num_heads=2, num_kv_heads=2, head_dim=16, scale=0.25)
    cache = KVCache(KVCacheSpec(1, 2, 2, 8, 16, dtype))
    v = random(1, 32)
    inputs = step_inputs([0], [1], [[1]])
    cache.write(v, v, inputs, 0)
    assert np.array_equal(cache.attend(v, inputs, spec), v.astype(rounded).astype(np.float32))


def test_copied_blocks_hold_every_layer_of_their_source() -> None:
    cache = KVCache(SPEC)
    k, v = random(8, 32), random(8, 32, seed=2)
    source, copied = step_inputs([0], [8], [[3]]), step_inputs([0], [8], [[6]])
    q = random(8, 64, seed=4)
    for layer in (0, 1):
        cache.write(k * (layer + 1), v, source, layer)
    cache.copy_blocks([(3, 5), (5, 6)])
    for layer in (0, 1):
        spec = AttentionSpec(layer=layer, num_heads=4, num_kv_heads=2, head_dim=16, scale=0.25)
        assert np.array_equal(cache.attend(q, source, spec), cache.attend(q, copied, spec))


def test_equal_ropes_share_one_table() -> None:
    ropes = ReferenceOps("auto", "auto", 32).ropes
    first = ropes.table(RopeConfig(rotary_dim=8), 32)
    assert ropes.table(RopeConfig(rotary_dim=8), 32) is first
    assert ropes.table(RopeConfig(rotary_dim=8), 64) is not first


def test_split_gives_views() -> None:
    x = random(2, 6)
    left, right = ReferenceOps("auto", "auto", 32).split(x, [4, 2])
    assert np.shares_memory(left, x)
    assert right.shape == (2, 2)


def test_the_reference_backend_refuses_an_isa() -> None:
    with pytest.raises(ConfigError, match="no kernel variants") as caught:
        ReferenceBackend(isa="avx2")
    assert caught.value.param == "isa"
