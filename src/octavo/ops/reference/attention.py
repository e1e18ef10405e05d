"""The KV cache and attention over its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray

from octavo.errors import ConfigError
from octavo.ops.arrays import F32
from octavo.ops.interface import AttentionSpec, KVCacheSpec, StepInputs
from octavo.ops.reference.activation import softcap
from octavo.step import TokenRun

_DTYPES: dict[str, DTypeLike] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int8": np.int8,
}
_TINY = np.float32(1e-36)  # below it 127 / max|x| could overflow; such a vector counts as zeros


class KVCache:
    """Keys and values, [num_layers, num_blocks, num_kv_heads, block_size, head_dim] each, in the dtype of the spec.

    int8 has float32 scales besides, one for each key and each value: the same shape without head_dim.
    """

    def __init__(self, spec: KVCacheSpec) -> None:
        shape = (spec.num_layers, spec.num_blocks, spec.num_kv_heads, spec.block_size, spec.head_dim)
        self.spec = spec
        try:
            self._keys: NDArray[np.generic] = np.zeros(shape, _DTYPES[spec.dtype])
            self._values: NDArray[np.generic] = np.zeros(shape, _DTYPES[spec.dtype])
            scales = shape[:-1] if spec.dtype == "int8" else (spec.num_layers, spec.num_blocks, 0)
            self._key_scales = np.zeros(scales, np.float32)
            self._value_scales = np.zeros(scales, np.float32)
        except MemoryError:
            raise ConfigError(
                f"the KV cache of {spec.num_blocks} blocks does not fit into memory; lower kv_cache_memory",
                param="kv_cache_memory",
            ) from None

    def write(self, k: F32, v: F32, inputs: StepInputs, layer: int) -> None:
        """Store k, v [rows, num_kv_heads * head_dim], rounded to the cache's dtype, at the step's slots."""
        blocks, offsets = np.divmod(inputs.slot_mapping, self.spec.block_size)
        shape = (k.shape[0], self.spec.num_kv_heads, self.spec.head_dim)
        if self.spec.dtype == "int8":
            for x, codes, scales in ((k, self._keys, self._key_scales), (v, self._values, self._value_scales)):
                codes[layer, blocks, :, offsets], scales[layer, blocks, :, offsets] = quantise_vectors(x.reshape(shape))
            return
        with np.errstate(over="ignore"):  # float16 turns what exceeds 65504 into infinity, as hardware does
            self._keys[layer, blocks, :, offsets] = k.reshape(shape).astype(self._keys.dtype)
            self._values[layer, blocks, :, offsets] = v.reshape(shape).astype(self._values.dtype)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks (source, destination) in every layer, in the order given."""
        for source, destination in pairs:
            for array in self._arrays:
                array[:, destination] = array[:, source]

    def read_block(self, block: int) -> bytes:
        """All that a block consists of, every layer, scales included."""
        return b"".join(array[:, block].tobytes() for array in self._arrays)

    def write_block(self, block: int, data: bytes) -> None:
        """Put back what `read_block` gave."""
        start = 0
        for array in self._arrays:
            part = array[:, block]
            array[:, block] = np.frombuffer(data, array.dtype, part.size, start).reshape(part.shape)
            start += part.nbytes

    @property
    def _arrays(self) -> tuple[NDArray[Any], ...]:
        return self._keys, self._values, self._key_scales, self._value_scales

    def move_tokens(self, source: KVCache, moves: Sequence[TokenRun]) -> None:
        """Copy runs of tokens (source slot, target slot, count) from a cache that differs in blocks alone."""
        for from_slot, to_slot, count in moves:
            old, first = divmod(from_slot, source.spec.block_size)
            new, start = divmod(to_slot, self.spec.block_size)
            for name in ("_keys", "_values", *(("_key_scales", "_value_scales") if self.spec.dtype == "int8" else ())):
                target, tokens = getattr(self, name), getattr(source, name)
                target[:, new, :, start : start + count] = tokens[:, old, :, first : first + count]

    def attend(self, q: F32, inputs: StepInputs, spec: AttentionSpec) -> F32:
        """Attention of q [rows, num_heads * head_dim] over each sequence's blocks -> same shape.

        Row by row: the arrays of a row's products have the shape its position gives them, whatever else is in the batch.
        Source: Vaswani et al., 2017; blocks as in Kwon et al., 2023.
        """
        out = np.empty_like(q)
        for index in range(inputs.first_position.size):
            first_row, last_row = inputs.query_start[index], inputs.query_start[index + 1]
            position = int(inputs.first_position[index])
            length = position + int(last_row - first_row)
            keys, values = self._gather(inputs, index, length, spec.layer)
            for row in range(first_row, last_row):
                start = 0 if spec.window is None else max(0, position + 1 - spec.window)
                end = position + 1 if spec.causal else length
                out[row] = _attend_row(q[row], keys[:, start:end], values[:, start:end], spec)
                position += 1
        return out

    def _gather(self, inputs: StepInputs, index: int, length: int, layer: int) -> tuple[F32, F32]:
        """Keys and values of one sequence's first `length` positions, float32 [num_kv_heads, length, head_dim]."""
        table = inputs.block_tables[index, : -(-length // self.spec.block_size)]
        keys = self._read(self._keys[layer, table], self._key_scales[layer, table])
        values = self._read(self._values[layer, table], self._value_scales[layer, table])
        return keys[:, :length], values[:, :length]

    def _read(self, blocks: NDArray[np.generic], scales: F32) -> F32:
        """blocks [n, num_kv_heads, block_size, head_dim] -> float32 [num_kv_heads, n * block_size, head_dim]."""
        wide = blocks.astype(np.float32)
        if self.spec.dtype == "int8":
            wide *= scales[..., None]
        by_head: F32 = wide.swapaxes(0, 1).reshape(self.spec.num_kv_heads, -1, self.spec.head_dim)
        return by_head


def quantise_vectors(x: F32) -> tuple[NDArray[np.int8], F32]:
    """int8 codes and float32 scales of vectors x [..., n]: x = scale * code, scale = max|x| / 127.

    A vector with a NaN or an infinity has the scale NaN, so that it shows in whatever reads it.
    """
    finite = np.isfinite(x).all(axis=-1, keepdims=True)
    tame: F32 = np.where(finite, x, np.float32(0))
    largest = np.abs(tame).max(axis=-1, keepdims=True)
    live = largest >= _TINY
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=live)
    codes = np.rint(tame * inverse).clip(-127, 127).astype(np.int8)
    scales: F32 = np.where(finite, np.where(live, largest / np.float32(127), np.float32(0)), np.float32(np.nan))
    return codes, scales[..., 0]


def _attend_row(q: F32, keys: F32, values: F32, spec: AttentionSpec) -> F32:
    """One query [num_heads * head_dim] over keys and values [num_kv_heads, length, head_dim] -> [num_heads * head_dim]."""
    grouped = q.reshape(spec.num_kv_heads, -1, spec.head_dim)
    scores = np.matmul(grouped, keys.swapaxes(1, 2)) * np.float32(spec.scale)
    if spec.softcap is not None:
        scores = softcap(scores, spec.softcap)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    attended: F32 = np.matmul(weights, values)
    return attended.reshape(-1)
