"""Matrices of quantised Hugging Face folders: AWQ, GPTQ, compressed-tensors and FP8, as codes or floats of one StoredTensor.

    method                what stands in the place of "weight"
    awq (gemm)            qweight int32 [in, out / 8], qzeros int32 [in / group, out / 8], scales [in / group, out]
    gptq                  qweight int32 [in * bits / 32, out], qzeros int32 [in / group, out * bits / 32], scales, g_idx [in]
    compressed-tensors    weight_packed int32 [out, in * bits / 32], weight_scale [out, in / group], weight_shape, and
    pack-quantized        weight_zero_point int32 [out * bits / 32, in / group] if it is not symmetric
    int-quantized         weight int8 [out, in], weight_scale [out, 1], weight_zero_point int8
    float-quantized, fp8  weight float8 [out, in], weight_scale of a tensor or of its rows, weight_scale_inv of squares of 128

A value is scale * (code - zero point). Sources: the packing code of AutoAWQ, GPTQModel and compressed-tensors.
"""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from octavo.config.model import QuantisedFolder
from octavo.errors import LoadError
from octavo.loader.coded_tensor import CodedTensor, Grid, ScaledFloats
from octavo.loader.safetensors import SafetensorsFile
from octavo.loader.stored import F32, StoredTensor

I32 = NDArray[np.int32]

_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight outputs each nibble of a word holds, lowest nibble first."""
_FLOATS = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
_FLOAT8 = {"F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2}


def find_quantised(
    files: Mapping[str, SafetensorsFile], stored: str, parameter: str, config: QuantisedFolder
) -> StoredTensor | None:
    """The matrix `stored` ("...q_proj.weight") if the files hold it quantised; None if they hold it plainly, or not at all.

    Raises: LoadError naming file and tensor for arrays that do not fit each other.
    """
    stem = stored.removesuffix(".weight")
    arrays = _Arrays(files, stem)
    end = next((end for end in ("qweight", "weight_packed", "weight") if arrays.has(end)), None)
    if end is None or end == "weight" and arrays.dtype(end) not in ("I8", *_FLOAT8):
        return None
    if len(arrays.shape(end)) != 2 or 0 in arrays.shape(end):
        raise LoadError(f"{arrays.source}: {end} has shape {list(arrays.shape(end))}, expected a matrix")
    try:
        if end == "qweight":
            grid = _awq(arrays, config) if config.method == "awq" else _gptq(arrays, config)
        elif end == "weight_packed":
            grid = _packed(arrays, config)
        elif arrays.dtype(end) == "I8":
            grid = _whole_bytes(arrays, config)
        else:
            return ScaledFloats(parameter, arrays.shape("weight"), arrays.source, lambda: _float8(arrays, config.block))
        return CodedTensor(parameter, arrays.source, grid)
    except (ValueError, IndexError, ZeroDivisionError) as error:
        raise LoadError(f"{arrays.source}: its arrays do not fit each other ({error})") from None


class _Arrays:
    """The arrays of one matrix, by the last part of their names."""

    def __init__(self, files: Mapping[str, SafetensorsFile], stem: str) -> None:
        self._files = files
        self._stem = stem

    @property
    def source(self) -> str:
        name = next(name for name in self._files if name.startswith(self._stem + "."))
        return f"{self._files[name].path.name}: {self._stem}"

    def has(self, end: str) -> bool:
        return f"{self._stem}.{end}" in self._files

    def dtype(self, end: str) -> str:
        name = f"{self._stem}.{end}"
        return self._files[name].entries[name].dtype

    def shape(self, end: str) -> tuple[int, ...]:
        name = f"{self._stem}.{end}"
        return self._files[name].entries[name].shape

    def raw(self, end: str, dtype: str, numpy_type: type) -> NDArray[np.generic]:
        """An array of a dtype of the header, as numpy reads it."""
        name = f"{self._stem}.{end}"
        if not self.has(end):
            raise LoadError(f"{self.source}: {end} is missing; the file is incomplete")
        if self.dtype(end) != dtype:
            raise LoadError(f"{self.source}: {end} has dtype {self.dtype(end)}, expected {dtype}")
        return self._files[name].array(name, numpy_type)

    def words(self, end: str) -> I32:
        words = self.raw(end, "I32", np.int32)
        if words.ndim != 2:
            raise LoadError(f"{self.source}: {end} has shape {list(words.shape)}, expected a matrix")
        return words.astype(np.int32, copy=False)

    def floats(self, end: str) -> F32:
        """As float32, in the array's own shape, which may be that of a scalar."""
        name = f"{self._stem}.{end}"
        if not self.has(end):
            raise LoadError(f"{self.source}: {end} is missing; the file is incomplete")
        dtype = self.dtype(end)
        if dtype not in _FLOATS:
            raise LoadError(f"{self.source}: {end} has dtype {dtype}, expected {' or '.join(_FLOATS)}")
        return self._files[name].array(name, _FLOATS[dtype]).astype(np.float32)


def _awq(arrays: _Arrays, config: QuantisedFolder) -> Grid:
    columns, packed = arrays.shape("qweight")
    scales = arrays.floats("scales")

    def outputs(words: I32) -> NDArray[np.uint8]:
        """[n, out / 8] words -> [out, n] codes."""
        nibbles = (words.view(np.uint32)[:, :, None] >> np.arange(0, 32, 4, dtype=np.uint32)) & 15
        codes = np.empty(nibbles.shape, np.uint8)
        codes[:, :, list(_AWQ_ORDER)] = nibbles
        return np.ascontiguousarray(codes.reshape(len(words), -1).T)

    return Grid(
        shape=(packed * 8, columns),
        bits=4,
        codes=lambda: outputs(arrays.words("qweight")),
        scales=np.ascontiguousarray(scales.T),
        zeros=outputs(arrays.words("qzeros")).astype(np.int32),
        group_of=_in_order(columns, len(scales), config.group_size),
    )


def _gptq(arrays: _Arrays, config: QuantisedFolder) -> Grid:
    scales, packed_zeros = arrays.floats("scales"), arrays.words("qzeros")
    rows = scales.shape[1]
    bits = packed_zeros.shape[1] * 32 // rows
    _check_words(packed_zeros.shape[1], bits, rows)
    columns = arrays.shape("qweight")[0] * 32 // bits
    if arrays.shape("qweight")[1] != rows:
        raise ValueError(f"scales are of {rows} outputs, qweight of {arrays.shape('qweight')[1]}")
    zeros = _unpacked(packed_zeros, bits, rows).astype(np.int32)
    if config.zeros_less_one:
        zeros = (zeros + 1) & ((1 << bits) - 1)
    return Grid(
        shape=(rows, columns),
        bits=bits,
        codes=lambda: _unpacked(np.ascontiguousarray(arrays.words("qweight").T), bits, columns),
        scales=np.ascontiguousarray(scales.T),
        zeros=np.ascontiguousarray(zeros.T),
        group_of=_listed_groups(arrays, "g_idx", columns, len(scales), config.group_size),
    )


def _packed(arrays: _Arrays, config: QuantisedFolder) -> Grid:
    """compressed-tensors, pack-quantized: codes and zero points are stored with 2^(bits - 1) added."""
    rows, columns = (int(size) for size in arrays.raw("weight_shape", "I64", np.int64).ravel())
    held, words = arrays.shape("weight_packed")
    bits = words * 32 // columns
    _check_words(words, bits, columns)
    if rows != held:
        raise ValueError(f"weight_shape says {rows} rows, weight_packed has {held}")
    scales = _row_scales(arrays, rows)
    zeros = np.full(scales.shape, 1 << (bits - 1), np.int32)
    if arrays.has("weight_zero_point"):
        packed = np.ascontiguousarray(arrays.words("weight_zero_point").T)
        zeros = np.ascontiguousarray(_unpacked(packed, bits, rows).T).astype(np.int32)
    group_of = _listed_groups(arrays, "weight_g_idx", columns, scales.shape[1], config.group_size)
    return Grid((rows, columns), bits, lambda: _unpacked(arrays.words("weight_packed"), bits, columns), scales, zeros, group_of)


def _whole_bytes(arrays: _Arrays, config: QuantisedFolder) -> Grid:
    """compressed-tensors, int-quantized: signed bytes."""
    shape = arrays.shape("weight")
    rows, columns = shape[0], shape[-1]
    scales = _row_scales(arrays, rows)
    zeros: I32 = np.full(scales.shape, 128, np.int32)
    if arrays.has("weight_zero_point"):
        zeros = zeros + arrays.raw("weight_zero_point", "I8", np.int8).reshape(-1, scales.shape[-1]).astype(np.int32)
    return Grid(
        (rows, columns),
        8,
        lambda: arrays.raw("weight", "I8", np.int8).view(np.uint8) ^ np.uint8(0x80),
        scales,
        zeros,
        _listed_groups(arrays, "weight_g_idx", columns, scales.shape[1], config.group_size),
    )


def _row_scales(arrays: _Arrays, rows: int) -> F32:
    """weight_scale of a tensor, of its rows, or of groups in them -> [rows, groups]."""
    scales = arrays.floats("weight_scale")
    return np.full((rows, 1), scales.ravel()[0], np.float32) if scales.size == 1 else scales.reshape(rows, -1)


def _listed_groups(arrays: _Arrays, end: str, columns: int, num_groups: int, size: int | None) -> I32:
    """The group of each column, by the array that lists them, which may be empty or -1 throughout for columns in order."""
    if arrays.has(end):
        listed: I32 = arrays.raw(end, "I32", np.int32).astype(np.int32, copy=False)
        if listed.size and not (listed == -1).all():
            return listed
    return _in_order(columns, num_groups, size)


def _in_order(columns: int, num_groups: int, size: int | None) -> I32:
    """The group of each column, one behind the other. size: of a group, as the configuration says; the last may be shorter."""
    if size is None or -(-columns // size) != num_groups:
        if columns % num_groups:
            raise ValueError(f"{num_groups} groups over {columns} columns")
        size = columns // num_groups
    return (np.arange(columns) // size).astype(np.int32)


def _float8(arrays: _Arrays, block: tuple[int, int]) -> F32:
    dtype = arrays.dtype("weight")
    values: F32 = arrays.raw("weight", dtype, _FLOAT8[dtype]).astype(np.float32)
    end = next((end for end in ("weight_scale", "weight_scale_inv") if arrays.has(end)), None)
    if end is None:
        return values
    (rows, columns), (high, wide), scales = values.shape, block, arrays.floats(end)
    if scales.size == 1 or scales.shape in ((rows,), (rows, 1)):
        return values * scales.reshape(-1, 1)
    if scales.shape != (-(-rows // high), -(-columns // wide)):
        raise LoadError(
            f"{arrays.source}: {end} has shape {list(scales.shape)}, expected one value, one per output, or one per block of "
            f"{[high, wide]}"
        )
    return values * np.repeat(np.repeat(scales, high, axis=0)[:rows], wide, axis=1)[:, :columns]


def _check_words(words: int, bits: int, count: int) -> None:
    if bits not in (2, 3, 4, 8) or words != -(-count * bits // 32):
        raise ValueError(f"{count} codes of {bits} bits in {words} words; known: 2, 3, 4 and 8 bits")


def _unpacked(words: I32, bits: int, count: int) -> NDArray[np.uint8]:
    """[n, words] -> [n, count] codes of `bits` bits, lowest first and dense across words."""
    _check_words(words.shape[1], bits, count)
    if 32 % bits == 0:
        shifts = np.arange(0, 32, bits, dtype=np.uint32)
        codes = ((words.view(np.uint32)[:, :, None] >> shifts) & np.uint32((1 << bits) - 1)).astype(np.uint8)
        return np.ascontiguousarray(codes.reshape(len(words), -1)[:, :count])
    single = np.unpackbits(words.view(np.uint8).reshape(len(words), -1), axis=1, count=count * bits, bitorder="little")
    dense: NDArray[np.uint8] = (single.reshape(len(words), count, bits) << np.arange(bits, dtype=np.uint8)).sum(
        axis=2, dtype=np.uint8
    )
    return dense
