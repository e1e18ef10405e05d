"""Rounding float weights to codes: the definition of int8, int4 and w8a8, bit for bit that of the native packer.

    int8   groups of 32, 64 or 128 values: scale = max|x| / 127 in float16, code = x / scale rounded, halves away from zero
    w8a8   the same for whole rows, with a float32 scale
    int4   groups of 32, 64 or 128 values with a scale and a minimum in float16, chosen for a small squared error: cut the range
           into 14 to 16 steps, in quarters, round, lay the least-squares line through (code, value), and keep the candidate
           whose line explains most. Scale and minimum are then rounded to float16, and the codes are chosen anew for those. On
           normally distributed weights the squared error is a fifth below that of rounding between minimum and maximum.

In groups of 32, int8 is q8_0 and int4 is q4_1. Where columns do not fill the last group of a row, it is shorter.
Source: the search is that of ggml's make_qkx2_quants, without weights and with fewer candidates.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from octavo.errors import LoadError
from octavo.loader.formats.block_format import F32, U8, QuantBlocks

PIECE = 32
"""Columns must be a multiple of this; sums of longer groups are those of their pieces, one after the other."""
_TOP = np.float32(15)
_STEPS = np.arange(9, dtype=np.float32) * np.float32(0.25) + np.float32(14)
_LARGEST_RANGE = np.float32(65504 * 15)
_SMALLEST_RANGE = np.float32(2.0**-26)

Rounded = tuple[U8, F32, F32 | None]
"""Of groups [n, size]: codes [n, size], scales [n, 1], minimums [n, 1]."""


def quantise(values: NDArray[np.float32], codes: str, group: int) -> QuantBlocks:
    """float32 [rows, columns] as codes of kind "int8", "int4" or "w8a8"; group: columns per scale (w8a8: all of them).

    Raises: LoadError if columns is no multiple of 32, or if a scale or minimum is not finite where it is stored: a NaN or an
    infinity among the values; int8: a magnitude above 8.3 million; int4: a group beyond +-65504 throughout, or one that spans
    more than 982,560.
    """
    rows, columns = values.shape
    if columns % PIECE:
        raise LoadError(f"{codes} needs rows of a multiple of {PIECE} values; this matrix has {columns} columns")
    whole = columns - columns % group
    parts = [
        _quantise_groups(np.ascontiguousarray(part, np.float32).reshape(-1, size), codes, rows)
        for part, size in ((values[:, :whole], group), (values[:, whole:], columns - whole))
        if part.size
    ]
    scales = np.concatenate([part[1] for part in parts], axis=1)
    minimums = None if codes != "int4" else np.concatenate([part[2] for part in parts if part[2] is not None], axis=1)
    if not (np.isfinite(scales).all() and (minimums is None or np.isfinite(minimums).all())):
        raise LoadError(f"{codes} cannot hold these weights: they contain NaN, infinity or values far beyond float16's 65504")
    return QuantBlocks(
        codes=np.concatenate([part[0] for part in parts], axis=1),
        bits=4 if codes == "int4" else 8,
        group=group,
        zero_point=0 if codes == "int4" else 128,
        scales=scales,
        minimums=minimums,
        scale_dtype="f32" if codes == "w8a8" else "f16",
    )


def _quantise_groups(groups: F32, codes: str, rows: int) -> Rounded:
    """Groups [n, size] of `rows` rows, rounded: everything [rows, ...]."""
    rounding: Callable[[F32], Rounded] = {"int8": _int8, "int4": _int4, "w8a8": _w8a8}[codes]
    with np.errstate(all="ignore"):
        found, scales, minimums = rounding(groups)
    return found.reshape(rows, -1), scales.reshape(rows, -1), None if minimums is None else minimums.reshape(rows, -1)


def _int8(groups: F32) -> Rounded:
    codes, scales, _ = _w8a8(groups)
    return codes, _through_f16(scales), None


def _w8a8(groups: F32) -> Rounded:
    scales = np.abs(groups).max(axis=1, keepdims=True) / np.float32(127)
    inverse = np.float32(1) / scales
    scaled = groups * np.where(np.isinf(inverse), np.float32(0), inverse)
    magnitude = np.abs(scaled)
    # Halves round away from zero, as roundf does; np.rint would round them to even.
    whole = np.floor(magnitude)
    whole += np.floor(2 * (magnitude - whole))
    return (np.copysign(whole, scaled) + np.float32(128)).astype(np.uint8), scales, None


def _int4(groups: F32) -> Rounded:
    scale, minimum = (_through_f16(found) for found in _scale_and_minimum(groups))
    inverse = np.where(scale > 0, np.float32(1) / scale, np.float32(0))
    codes = _rounded(np.clip((groups - minimum) * inverse, np.float32(0), _TOP)).astype(np.uint8)
    return codes, scale, minimum


def _scale_and_minimum(groups: F32) -> tuple[F32, F32]:
    """The best candidate's line for groups [n, size]: float32 [n, 1] each, before the rounding to float16."""
    size = np.float32(groups.shape[1])
    low = groups.min(axis=1, keepdims=True)
    span = groups.max(axis=1, keepdims=True) - low
    y = groups - low
    sum_y = _piecewise_sum(y)
    best_gain = np.full_like(low, -1)
    scale, offset = np.zeros_like(low), np.zeros_like(low)
    for steps in _STEPS:
        codes = _rounded(np.minimum(y * (steps / span), _TOP))
        total = codes.sum(axis=1, keepdims=True)  # whole numbers: exact in any order
        squares = (codes * codes).sum(axis=1, keepdims=True)
        products = _piecewise_sum(y * codes)
        step = (size * products - sum_y * total) / (size * squares - total * total)
        rest = (sum_y - step * total) / size
        gain = step * products + rest * sum_y
        better = (gain > best_gain) & (span >= _SMALLEST_RANGE)
        best_gain, scale, offset = (
            np.where(better, gain, best_gain),
            np.where(better, step, scale),
            np.where(better, rest, offset),
        )
    bad = ~np.isfinite(groups).all(axis=1, keepdims=True) | (span > _LARGEST_RANGE)
    return np.where(bad, np.float32(np.nan), scale), low + offset


def _rounded(values: F32) -> F32:
    """Values >= 0 to whole numbers, halves up."""
    rounded: F32 = np.floor(values + np.float32(0.5))
    return rounded


def _through_f16(values: F32) -> F32:
    return values.astype(np.float16).astype(np.float32)


def _piecewise_sum(terms: F32) -> F32:
    """Sums of [n, size] along the rows: in each piece in the order i + (i + 16), then i + (i + 8), ...; then the pieces in
    order -> [n, 1]."""
    pieces = terms.reshape(len(terms), -1, PIECE)
    width = PIECE
    while width > 1:
        width //= 2
        pieces = pieces[:, :, :width] + pieces[:, :, width:]
    total: F32 = np.zeros((len(terms), 1), np.float32)
    for piece in range(pieces.shape[1]):
        total = total + pieces[:, piece]
    return total
