"""Storage formats against the `gguf` package, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from octavo.errors import LoadError
from octavo.loader.formats import BLOCK_FORMATS, KNOWN_FORMATS, bytes_per_row, dequantise, floats, unpack
from octavo.loader.stored import StoredRows

ROWS, COLUMNS = 7, 768


def random_rows(format: str, seed: int = 0, *, finite: bool = True) -> NDArray[np.uint8]:
    """Random stored bytes; with `finite` every float16 field of a block format is a finite value of any size or sign."""
    rng = np.random.default_rng([seed, *format.encode()])
    data = rng.integers(0, 256, (ROWS, bytes_per_row(format, COLUMNS)), dtype=np.uint8)
    if finite and format in BLOCK_FORMATS:
        block = BLOCK_FORMATS[format]
        blocks = data.reshape(ROWS, -1, block.size_bytes)
        for offset in block.half_offsets:
            high = blocks[..., offset + 1]
            high[(high & 0x7C) == 0x7C] &= 0xBF
    return data


def reference(format: str, data: NDArray[np.uint8]) -> NDArray[np.float32]:
    with np.errstate(all="ignore"):
        values = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[format.upper()])
    return np.asarray(values, dtype=np.float32)


@pytest.mark.parametrize("format", KNOWN_FORMATS)
def test_dequantise_equals_the_gguf_package_bit_for_bit(format: str) -> None:
    for seed in range(3):
        data = random_rows(format, seed)
        ours, theirs = dequantise(format, data, COLUMNS), reference(format, data)
        assert ours.shape == (ROWS, COLUMNS) and ours.dtype == np.float32
        numbers = ~np.isnan(theirs)
        assert np.array_equal(np.isnan(ours), ~numbers)
        assert np.array_equal(ours.view(np.uint32)[numbers], theirs.view(np.uint32)[numbers])


@pytest.mark.parametrize("format", KNOWN_FORMATS)
def test_dequantise_agrees_on_infinite_and_nan_scales(format: str) -> None:
    data = random_rows(format, 9, finite=False)
    assert np.array_equal(dequantise(format, data, COLUMNS), reference(format, data), equal_nan=True)


@pytest.mark.parametrize("format", BLOCK_FORMATS)
def test_bytes_per_row_equals_the_gguf_package(format: str) -> None:
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[format.upper()]]
    assert bytes_per_row(format, 5 * block) == 5 * size


@pytest.mark.parametrize("format", BLOCK_FORMATS)
def test_unpacked_codes_fit_their_bits_and_rebuild_the_values(format: str) -> None:
    data = random_rows(format, 4)
    blocks = unpack(format, data, COLUMNS)
    assert blocks.codes.shape == (ROWS, COLUMNS) and blocks.codes.dtype == np.uint8
    assert int(blocks.codes.max()) < 2**blocks.bits
    assert blocks.scales.shape == (ROWS, COLUMNS // blocks.group)
    centred = blocks.codes.astype(np.float32) - np.float32(blocks.zero_point)
    values = np.repeat(blocks.scales, blocks.group, axis=1) * centred
    if blocks.minimums is not None:
        values = values + np.repeat(blocks.minimums, blocks.group, axis=1)
    assert np.array_equal(values, dequantise(format, data, COLUMNS))


@pytest.mark.parametrize("format", BLOCK_FORMATS)
def test_scale_dtype_f16_means_scales_survive_float16(format: str) -> None:
    blocks = unpack(format, random_rows(format, 5), COLUMNS)
    if blocks.scale_dtype == "f16":
        assert np.array_equal(blocks.scales.astype(np.float16).astype(np.float32), blocks.scales)


def test_columns_that_are_no_whole_blocks_are_refused() -> None:
    with pytest.raises(LoadError, match="blocks of 256"):
        bytes_per_row("q4_k", 576)


def test_an_unknown_format_lists_the_known_ones() -> None:
    with pytest.raises(LoadError, match="q4_k"):
        bytes_per_row("iq2_xxs", 256)


def test_rows_of_the_wrong_length_are_refused() -> None:
    with pytest.raises(LoadError, match="take 34 bytes"):
        dequantise("q8_0", np.zeros((2, 33), dtype=np.uint8), 32)


@pytest.mark.parametrize("format", BLOCK_FORMATS)
def test_a_nan_scale_is_refused_naming_file_and_tensor(format: str) -> None:
    data = random_rows(format)
    tensor = StoredRows("w", (ROWS, COLUMNS), format, data, None, "model.gguf: blk.0.attn_q.weight")
    tensor.check_finite()
    block = BLOCK_FORMATS[format]
    offset = block.half_offsets[-1]
    data.reshape(ROWS, -1, block.size_bytes)[3, 1, offset : offset + 2] = [0x00, 0x7E]
    with pytest.raises(LoadError, match=r"model\.gguf: blk\.0\.attn_q\.weight: NaN .* row 3"):
        tensor.check_finite()


@pytest.mark.parametrize(("format", "pattern"), [("f32", [0, 0, 0x80, 0x7F]), ("f16", [0, 0xFC]), ("bf16", [0xC0, 0x7F])])
def test_a_non_finite_float_is_refused(format: str, pattern: list[int]) -> None:
    data = np.zeros((2, bytes_per_row(format, 8)), dtype=np.uint8)
    tensor = StoredRows("w", (2, 8), format, data, None, "a.safetensors: w")
    tensor.check_finite()
    data[1, : len(pattern)] = pattern
    with pytest.raises(LoadError, match="row 1, column 0"):
        tensor.check_finite()


def test_encoded_floats_round_to_nearest_even() -> None:
    rng = np.random.default_rng(8)
    values = (rng.standard_normal((3, 4096)) * 10.0 ** rng.integers(-30, 30, (3, 4096))).astype(np.float32)
    values[0, :2] = [1.00390625, 1.01171875]  # halfway between two bfloat16 neighbours
    expected = gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16)
    assert np.array_equal(floats.encode("bf16", values), expected)
    with np.errstate(over="ignore"):
        assert np.array_equal(
            dequantise("f16", floats.encode("f16", values), 4096), values.astype(np.float16).astype(np.float32)
        )
    assert np.array_equal(dequantise("f32", floats.encode("f32", values), 4096), values)


def test_row_order_gives_logical_rows_of_matrices_and_vectors() -> None:
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    order = np.array([2, 0, 3, 1], dtype=np.int32)
    matrix = StoredRows("w", (4, 3), "f32", values.view(np.uint8), order, "f: w")
    assert np.array_equal(matrix.to_float32(1, 3), values[[0, 3]])
    vector = StoredRows("b", (4,), "f32", values[:, 0].copy()[None].view(np.uint8), order, "f: b")
    assert np.array_equal(vector.to_float32(), [6.0, 0.0, 9.0, 3.0])
