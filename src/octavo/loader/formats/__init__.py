"""Storage formats of weights: how many bytes a row takes, its exact float32 values, and its integer view for the packer.

Every function takes `data`, uint8 [rows, bytes_per_row(format, columns)], as it lies in the file.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.errors import LoadError
from octavo.loader.formats import blocks_32, floats, k_quants
from octavo.loader.formats.block_format import BlockFormat, QuantBlocks
from octavo.loader.formats.quantise import quantise

__all__ = [
    "BLOCK_FORMATS",
    "KNOWN_FORMATS",
    "QuantBlocks",
    "bytes_per_row",
    "dequantise",
    "evaluate",
    "first_non_finite",
    "quantise",
    "unpack",
]

U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]

BLOCK_FORMATS: dict[str, BlockFormat] = {**blocks_32.FORMATS, **k_quants.FORMATS}
_SLAB_VALUES = 1 << 17
"""Values dequantised at a time: codes and result of a slab stay in the cache, and temporaries stay small."""

KNOWN_FORMATS: tuple[str, ...] = (*floats.ITEM_BYTES, *BLOCK_FORMATS)


def bytes_per_row(format: str, columns: int) -> int:
    """Stored bytes of one row. Raises: LoadError for an unknown format or a column count that is no multiple of its block."""
    item = floats.ITEM_BYTES.get(format)
    if item is not None:
        return columns * item
    block = _block_format(format)
    if columns % block.columns:
        raise LoadError(f"format {format} stores blocks of {block.columns} values; {columns} columns are no multiple of that")
    return columns // block.columns * block.size_bytes


def dequantise(format: str, data: U8, columns: int) -> F32:
    """Exact values, float32 [rows, columns]; bits equal `gguf.quants.dequantize`. f32 data comes back as a view.

    Raises: LoadError as bytes_per_row does, or when the rows have another length.
    """
    _check_rows(format, data, columns)
    if format in floats.ITEM_BYTES:
        return floats.dequantise(format, data)
    rows = data.shape[0]
    values = np.empty((rows, columns), dtype=np.float32)
    step = max(1, _SLAB_VALUES // max(1, columns))
    with np.errstate(invalid="ignore", over="ignore"):  # damaged scales give NaN or infinity here; check_finite refuses them
        for first in range(0, rows, step):
            values[first : first + step] = evaluate(unpack(format, data[first : first + step], columns))
    return values


def unpack(format: str, data: U8, columns: int) -> QuantBlocks:
    """Integer view of quantised rows (see QuantBlocks). Raises: LoadError as bytes_per_row does, and for float formats."""
    block = _block_format(format)
    _check_rows(format, data, columns)
    return block.unpack(data.reshape(data.shape[0], columns // block.columns, block.size_bytes))


def first_non_finite(format: str, data: U8, columns: int) -> tuple[int, int] | None:
    """Row and first column of the first NaN or infinity (for block formats: of the block whose scale is one), or None."""
    _check_rows(format, data, columns)
    if format in floats.ITEM_BYTES:
        return floats.first_non_finite(format, data)
    block = _block_format(format)
    blocks = data.reshape(data.shape[0], columns // block.columns, block.size_bytes)
    for offset in block.half_offsets:
        # The exponent of a little-endian float16 lies in bits 2..6 of its second byte.
        bad = (blocks[..., offset + 1] & np.uint8(0x7C)) == 0x7C
        if bad.any():
            row, index = np.unravel_index(int(bad.argmax()), bad.shape)
            return int(row), int(index) * block.columns
    return None


def evaluate(blocks: QuantBlocks) -> F32:
    """scale * (code - zero_point) + minimum, float32 [rows, columns], one rounding per operation."""
    columns = blocks.codes.shape[1]
    values = blocks.codes.astype(np.float32)
    if blocks.zero_point:
        values -= np.float32(blocks.zero_point)
    values *= np.repeat(blocks.scales, blocks.group, axis=1)[:, :columns]
    if blocks.minimums is not None:
        values += np.repeat(blocks.minimums, blocks.group, axis=1)[:, :columns]
    return values if blocks.column_order is None else np.take(values, np.argsort(blocks.column_order), axis=1)


def _block_format(format: str) -> BlockFormat:
    block = BLOCK_FORMATS.get(format)
    if block is None:
        raise LoadError(f"unknown storage format {format!r}; known: {', '.join(KNOWN_FORMATS)}")
    return block


def _check_rows(format: str, data: U8, columns: int) -> None:
    expected = bytes_per_row(format, columns)
    if data.ndim != 2 or data.shape[1] != expected:
        raise LoadError(f"{format} rows of {columns} values take {expected} bytes; the data has shape {data.shape}")
