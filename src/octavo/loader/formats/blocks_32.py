"""The simple GGUF block types: 32 values share one float16 scale (and one float16 minimum for the _1 kinds).

    q8_0  d | 32 x int8                   q4_0  d | 16 bytes of nibbles          q4_1  d m | 16 bytes of nibbles
    q5_0  d | 32 high bits | 16 bytes     q5_1  d m | 32 high bits | 16 bytes

Byte j of the nibbles holds value j in its low half and value j + 16 in its high half; bit j of the high
bits is bit 4 of value j.
Source: ggml-quants.c of llama.cpp, as restated by the `gguf` package.
"""

from __future__ import annotations

import numpy as np

from octavo.loader.formats.block_format import F32, U8, BlockFormat, half, rows_of

BLOCK = 32


def _nibbles(packed: U8) -> U8:
    """[rows, blocks, 16] -> [rows, blocks, 32]: all low halves, then all high halves."""
    return np.concatenate([packed & np.uint8(0x0F), packed >> np.uint8(4)], axis=-1)


def _fifth_bits(packed: U8) -> U8:
    """[rows, blocks, 4] of 32 flags -> [rows, blocks, 32] holding 0 or 16."""
    bits: U8 = np.unpackbits(packed, axis=-1, bitorder="little")
    bits <<= np.uint8(4)
    return bits


def _split_q8_0(blocks: U8) -> tuple[U8, F32, F32 | None]:
    codes = blocks[..., 2:] ^ np.uint8(0x80)  # int8 x as unsigned x + 128
    return rows_of(codes, blocks.shape[0]), half(blocks, 0), None


def _split_q4_0(blocks: U8) -> tuple[U8, F32, F32 | None]:
    return rows_of(_nibbles(blocks[..., 2:]), blocks.shape[0]), half(blocks, 0), None


def _split_q4_1(blocks: U8) -> tuple[U8, F32, F32 | None]:
    return rows_of(_nibbles(blocks[..., 4:]), blocks.shape[0]), half(blocks, 0), half(blocks, 2)


def _split_q5_0(blocks: U8) -> tuple[U8, F32, F32 | None]:
    codes = _nibbles(blocks[..., 6:]) | _fifth_bits(blocks[..., 2:6])
    return rows_of(codes, blocks.shape[0]), half(blocks, 0), None


def _split_q5_1(blocks: U8) -> tuple[U8, F32, F32 | None]:
    codes = _nibbles(blocks[..., 8:]) | _fifth_bits(blocks[..., 4:8])
    return rows_of(codes, blocks.shape[0]), half(blocks, 0), half(blocks, 2)


FORMATS: dict[str, BlockFormat] = {
    "q8_0": BlockFormat(BLOCK, 34, 8, 32, 128, (0,), "f16", _split_q8_0),
    "q4_0": BlockFormat(BLOCK, 18, 4, 32, 8, (0,), "f16", _split_q4_0),
    "q4_1": BlockFormat(BLOCK, 20, 4, 32, 0, (0, 2), "f16", _split_q4_1),
    "q5_0": BlockFormat(BLOCK, 22, 8, 32, 16, (0,), "f16", _split_q5_0),
    "q5_1": BlockFormat(BLOCK, 24, 8, 32, 0, (0, 2), "f16", _split_q5_1),
}
