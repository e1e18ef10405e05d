"""Packing: stored tensors into the native panel layout, by the rules of --dtype and --quantization.

How each storage format is held with dtype auto:
  f32, f16, bf16                    as they are (a narrower float is widened while it is multiplied)
  q8_0, q5_0, q5_1, q5_k, q6_k      8-bit codes with the format's own scales, without loss
  q4_0, q4_1, q4_k, q2_k, q3_k      4-bit codes with the format's own scales, without loss
The scales of q4_k, q5_k and q6_k stay what they are in the file, a unit for 256 columns and small integers.
An explicit dtype widens or rounds everything to that type, and a quantization rounds those values to codes
(ops/weight_storage.py has the rules). All of it reads the memory map directly and in parallel; only q2_k and q3_k go through
numpy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo import _native
from octavo.errors import LoadError
from octavo.loader.formats import QuantBlocks
from octavo.loader.parameter import Axis, Role
from octavo.loader.stored import StoredRows, StoredTensor
from octavo.ops.arrays import I32
from octavo.ops.weight_storage import STEP, WeightStorage, weight_storage

_FLOAT_TYPES = {"f32": _native.FloatType.f32, "f16": _native.FloatType.f16, "bf16": _native.FloatType.bf16}
_FLOAT_KINDS = {"f32": _native.WeightKind.f32, "f16": _native.WeightKind.f16, "bf16": _native.WeightKind.bf16}
_CODE_KINDS = {"int8": _native.WeightKind.q8, "int4": _native.WeightKind.q4, "w8a8": _native.WeightKind.w8a8}
_NATIVE_BLOCKS = {
    "q8_0": _native.BlockFormat.q8_0,
    "q4_0": _native.BlockFormat.q4_0,
    "q4_1": _native.BlockFormat.q4_1,
    "q5_0": _native.BlockFormat.q5_0,
    "q5_1": _native.BlockFormat.q5_1,
    "q4_k": _native.BlockFormat.q4_k,
    "q5_k": _native.BlockFormat.q5_k,
    "q6_k": _native.BlockFormat.q6_k,
}


class Packer:
    """Packs matrices on a thread pool.

    dtype, quantization, group_size   as in LoadingConfig
    """

    def __init__(self, pool: _native.ThreadPool, dtype: str, quantization: str, group_size: int) -> None:
        self._pool = pool
        self._dtype = dtype
        self._quantization = quantization
        self._group_size = group_size

    def pack(
        self, parts: Sequence[StoredTensor], biases: Sequence[StoredTensor | None], role: Role, cut: Axis | None
    ) -> _native.Linear:
        """One native weight of the parts [out_i, in], one under the other.

        Raises: LoadError naming file and tensor when a value or scale is NaN or infinite, or as weight_storage does.
        """
        weight = _native.Linear()
        orders: list[I32 | None] = []
        for part, bias in zip(parts, biases, strict=True):
            storage = weight_storage(part, role, cut, self._dtype, self._quantization, self._group_size)
            if storage.float_type is None and not isinstance(part, StoredRows):
                blocks = _blocks_of(part)
                orders.append(blocks.column_order)
                _check_orders(part, orders, role)
                appended = self._append_codes(weight, blocks)
            else:
                appended = self._append(weight, part, storage)
            if not appended:
                part.check_finite()
                raise LoadError(f"{part.source}: {part.name} has a value beyond the range of the chosen dtype or quantization")
            if bias is not None:
                bias.check_finite()
                weight.set_bias(np.ascontiguousarray(bias.to_float32()))
        if orders and orders[0] is not None:
            weight.set_column_order(orders[0])
        return weight

    def _append(self, weight: _native.Linear, part: StoredTensor, storage: WeightStorage) -> bool:
        columns, group = part.shape[1], self._group_size
        kind = None if storage.float_type is None else _FLOAT_KINDS[storage.float_type]
        codes = None if storage.codes is None else _CODE_KINDS[storage.codes.kind]
        if isinstance(part, StoredRows):
            float_type, native = _FLOAT_TYPES.get(part.format), _NATIVE_BLOCKS.get(part.format)
            if float_type is not None:
                assert kind is not None
                return weight.append_float(self._pool, part.data, part.row_order, columns, float_type, kind, codes, group)
            if native is not None:
                return weight.append_blocks(self._pool, part.data, part.row_order, columns, native, kind, codes, group)
        if kind is not None:
            values = np.ascontiguousarray(part.to_float32()).view(np.uint8)
            return weight.append_float(self._pool, values, None, columns, _FLOAT_TYPES["f32"], kind, codes, group)
        return self._append_codes(weight, part.to_codes())

    def _append_codes(self, weight: _native.Linear, blocks: QuantBlocks) -> bool:
        """Formats that the native core does not read itself: q2_k, q3_k, and those with several arrays."""
        return weight.append_codes(
            self._pool,
            np.ascontiguousarray(blocks.codes),
            np.ascontiguousarray(blocks.scales),
            None if blocks.minimums is None else np.ascontiguousarray(blocks.minimums),
            blocks.bits,
            blocks.group,
            blocks.zero_point,
            blocks.scale_dtype == "f16",
        )


def _blocks_of(part: StoredTensor) -> QuantBlocks:
    """The codes of a matrix in several arrays. Raises: LoadError if the kernels cannot take it as it is."""
    if part.shape[1] % STEP:
        raise LoadError(
            f"{part.source}: codes need a multiple of {STEP} columns, {part.name} has {part.shape[1]};"
            " add --dtype bfloat16 to hold its values instead"
        )
    return part.to_codes()


def _check_orders(part: StoredTensor, orders: Sequence[I32 | None], role: Role) -> None:
    """One weight rounds its input once, in one order of columns; tables and experts have theirs in order."""
    first, last = orders[0], orders[-1]
    if last is not None and role in ("embedding", "expert"):
        problem = f"{part.name} orders its columns by activation (desc_act), which an {role} cannot do"
    elif (first is None) != (last is None) or (first is not None and last is not None and not np.array_equal(first, last)):
        problem = f"{part.name} orders its columns (desc_act) in another way than a matrix that has the same input"
    else:
        return
    raise LoadError(f"{part.source}: {problem}; add --dtype bfloat16 to hold its values instead")
