"""The GGUF k-quants: 256 values per block in groups of 16 or 32 whose scales are themselves small integers times float16.

Byte layout of one block (d, dmin: float16):
    q2_k   scales 16 (low half scale, high half minimum) | codes 64, 2 bits each | d | dmin
    q3_k   high bits 32 | codes 64, 2 bits each | scales 12, 6 bits each | d
    q4_k   d | dmin | scales 12, 6-bit scales and minimums | codes 128, nibbles
    q5_k   d | dmin | scales 12 | high bits 32 | codes 128, nibbles
    q6_k   low nibbles 128 | high pairs 64 | scales 16, int8 | d
Codes of a block run in planes: every 32 (q6_k: 64) bytes hold one plane per shift, and planes follow in value order.
Source: ggml-quants.c of llama.cpp, as restated by the `gguf` package. Scales are products of a float16 and an integer rounded
once to float32, exactly as there, so scale * (code - zero_point) + minimum gives the reference's very bits.
"""

from __future__ import annotations

import numpy as np

from octavo.loader.formats.block_format import F32, U8, BlockFormat, half, rows_of

BLOCK = 256
_TWO_BIT_SHIFTS = np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]
_NIBBLE_SHIFTS = np.array([0, 4], dtype=np.uint8)[:, None]
_BIT_SHIFTS = np.arange(8, dtype=np.uint8)[:, None]


def _planes(packed: U8, width: int, shifts: U8, mask: int) -> U8:
    """[rows, blocks, n * width] -> [rows, blocks, n, len(shifts), width]: the field at every shift, plane after plane."""
    rows, blocks = packed.shape[:2]
    fields: U8 = packed.reshape(rows, blocks, -1, 1, width) >> shifts
    fields &= np.uint8(mask)
    return fields


def _flat(per_block: F32) -> F32:
    """[rows, blocks, groups] -> [rows, blocks * groups]."""
    rows, blocks, groups = per_block.shape
    return per_block.reshape(rows, blocks * groups)


def _scales_and_minimums(blocks: U8) -> tuple[F32, F32]:
    """q4_k and q5_k: eight 6-bit scales and minimums from bytes 4..15.

    Bytes 0-3 and 4-7 hold scales and minimums 0-3 in their low six bits; bytes 8-11 hold the low halves of scales and minimums
    4-7, whose upper two bits sit on top of bytes 0-7.
    """
    first, second, low = blocks[..., 4:8], blocks[..., 8:12], blocks[..., 12:16]
    scales = np.concatenate(
        [first & np.uint8(0x3F), (low & np.uint8(0x0F)) | ((first >> np.uint8(2)) & np.uint8(0x30))], axis=-1
    )
    minimums = np.concatenate(
        [second & np.uint8(0x3F), (low >> np.uint8(4)) | ((second >> np.uint8(2)) & np.uint8(0x30))], axis=-1
    )
    with np.errstate(invalid="ignore"):  # an infinite d times 0; check_finite names the tensor
        return (
            _flat(half(blocks, 0)[..., None] * scales.astype(np.float32)),
            _flat(-(half(blocks, 2)[..., None] * minimums.astype(np.float32))),
        )


def _split_q2_k(blocks: U8) -> tuple[U8, F32, F32 | None]:
    packed = blocks[..., :16]
    with np.errstate(invalid="ignore"):
        scales = half(blocks, 80)[..., None] * (packed & np.uint8(0x0F)).astype(np.float32)
        minimums = -(half(blocks, 82)[..., None] * (packed >> np.uint8(4)).astype(np.float32))
    codes = _planes(blocks[..., 16:80], 32, _TWO_BIT_SHIFTS, 0x03)
    return rows_of(codes, blocks.shape[0]), _flat(scales), _flat(minimums)


def _split_q3_k(blocks: U8) -> tuple[U8, F32, F32 | None]:
    rows, count = blocks.shape[:2]
    packed = blocks[..., 96:108]
    low = _planes(packed[..., :8], 8, _NIBBLE_SHIFTS, 0x0F).reshape(rows, count, 16)
    high = _planes(packed[..., 8:], 4, _TWO_BIT_SHIFTS, 0x03).reshape(rows, count, 16)
    integers = (low | (high << np.uint8(4))).astype(np.float32) - np.float32(32)
    with np.errstate(invalid="ignore"):
        scales = half(blocks, 108)[..., None] * integers
    codes = _planes(blocks[..., 32:96], 32, _TWO_BIT_SHIFTS, 0x03).reshape(rows, count, BLOCK)
    # The stored value is code - 4 where the high bit is clear and code where it is set: with zero point 4, a set bit adds 4.
    codes |= _planes(blocks[..., :32], 32, _BIT_SHIFTS, 0x01).reshape(rows, count, BLOCK) << np.uint8(2)
    return rows_of(codes, rows), _flat(scales), None


def _split_q4_k(blocks: U8) -> tuple[U8, F32, F32 | None]:
    codes = _planes(blocks[..., 16:], 32, _NIBBLE_SHIFTS, 0x0F)
    return rows_of(codes, blocks.shape[0]), *_scales_and_minimums(blocks)


def _split_q5_k(blocks: U8) -> tuple[U8, F32, F32 | None]:
    rows, count = blocks.shape[:2]
    codes = _planes(blocks[..., 48:], 32, _NIBBLE_SHIFTS, 0x0F).reshape(rows, count, BLOCK)
    codes |= _planes(blocks[..., 16:48], 32, _BIT_SHIFTS, 0x01).reshape(rows, count, BLOCK) << np.uint8(4)
    return rows_of(codes, rows), *_scales_and_minimums(blocks)


def _split_q6_k(blocks: U8) -> tuple[U8, F32, F32 | None]:
    rows, count = blocks.shape[:2]
    codes = _planes(blocks[..., :128], 64, _NIBBLE_SHIFTS, 0x0F).reshape(rows, count, BLOCK)
    codes |= _planes(blocks[..., 128:192], 32, _TWO_BIT_SHIFTS, 0x03).reshape(rows, count, BLOCK) << np.uint8(4)
    integers = np.ascontiguousarray(blocks[..., 192:208]).view(np.int8).astype(np.float32)
    with np.errstate(invalid="ignore"):
        scales = half(blocks, 208)[..., None] * integers
    return rows_of(codes, rows), _flat(scales), None


FORMATS: dict[str, BlockFormat] = {
    "q2_k": BlockFormat(BLOCK, 84, 4, 16, 0, (80, 82), "f32", _split_q2_k),
    "q3_k": BlockFormat(BLOCK, 110, 4, 16, 4, (108,), "f32", _split_q3_k),
    "q4_k": BlockFormat(BLOCK, 144, 4, 32, 0, (0, 2), "f32", _split_q4_k),
    "q5_k": BlockFormat(BLOCK, 176, 8, 32, 0, (0, 2), "f32", _split_q5_k),
    "q6_k": BlockFormat(BLOCK, 210, 8, 16, 32, (208,), "f32", _split_q6_k),
}
