"""BlockFormat: how one GGUF block type splits into codes, scales and minimums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class QuantBlocks:
    """A quantised matrix as unsigned integers: value = scale * (code - zero_point) + minimum, evaluated in float32.

    codes        uint8 [rows, columns], one code per value, not packed
    bits         4 or 8: the smallest storage that holds the codes
    group        columns that share one scale; the last group of a row may be shorter
    zero_point   integer subtracted from every code
    scales       float32 [rows, groups]
    minimums     float32 [rows, groups], or None when the format has none
    scale_dtype  "f16" if every scale and minimum is exactly a float16 value, else "f32"
    column_order None: as in the matrix. Else int32 [columns]: column i of the codes is column column_order[i] of the matrix
    """

    codes: U8
    bits: Literal[4, 8]
    group: int
    zero_point: int
    scales: F32
    minimums: F32 | None
    scale_dtype: Literal["f16", "f32"]
    column_order: NDArray[np.int32] | None = None


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """One block type: `columns` values are stored in `size_bytes` bytes.

    half_offsets  byte offsets of the float16 fields (scales and minimums) inside a block; a NaN there poisons the block
    split         blocks uint8 [rows, blocks, size_bytes] -> codes [rows, blocks * columns], scales and minimums
                  [rows, blocks * columns / group]
    """

    columns: int
    size_bytes: int
    bits: Literal[4, 8]
    group: Literal[16, 32]
    zero_point: int
    half_offsets: tuple[int, ...]
    scale_dtype: Literal["f16", "f32"]
    split: Callable[[U8], tuple[U8, F32, F32 | None]]

    def unpack(self, blocks: U8) -> QuantBlocks:
        """Integer view of blocks [rows, blocks, size_bytes]."""
        codes, scales, minimums = self.split(blocks)
        return QuantBlocks(codes, self.bits, self.group, self.zero_point, scales, minimums, self.scale_dtype)


def half(blocks: U8, offset: int) -> F32:
    """The float16 field at `offset` of every block, widened: [rows, blocks, size_bytes] -> float32 [rows, blocks]."""
    field = np.ascontiguousarray(blocks[..., offset : offset + 2])
    return field.view(np.dtype("<f2"))[..., 0].astype(np.float32)


def rows_of(values: NDArray[np.uint8], rows: int) -> U8:
    """Lay codes of any block shape out as [rows, columns], in order."""
    return values.reshape(rows, values.size // rows if rows else 0)
