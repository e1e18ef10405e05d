"""Plain floating-point storage: f32, f16 and bf16, little-endian."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]

ITEM_BYTES = {"f32": 4, "f16": 2, "bf16": 2}
_EXPONENT = {"f32": 0x7F800000, "f16": 0x7C00, "bf16": 0x7F80}


def dequantise(format: str, data: U8) -> F32:
    """Widen raw rows, uint8 [rows, columns * item], to float32 [rows, columns]; f32 data stays a view."""
    if format == "f32":
        narrow: F32 = data.view(np.dtype("<f4"))
        return narrow
    if format == "f16":
        return data.view(np.dtype("<f2")).astype(np.float32)
    wide = data.view(np.dtype("<u2")).astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)


def encode(format: str, values: F32) -> U8:
    """Store float32 [rows, columns] as raw rows, uint8 [rows, columns * item]; bf16 rounds to nearest, ties to even."""
    if format == "f32":
        return values.astype(np.dtype("<f4")).view(np.uint8)
    if format == "f16":
        return values.astype(np.dtype("<f2")).view(np.uint8)
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return rounded.astype(np.dtype("<u2")).view(np.uint8)


def first_non_finite(format: str, data: U8) -> tuple[int, int] | None:
    """Row and column of the first NaN or infinity in raw rows, or None; looks at exponent bits only, nothing is widened."""
    words = data.view(np.dtype("<u4" if format == "f32" else "<u2"))
    mask = _EXPONENT[format]
    bad = (words & mask) == mask
    if not bad.any():
        return None
    row, column = np.unravel_index(int(bad.argmax()), bad.shape)
    return int(row), int(column)
