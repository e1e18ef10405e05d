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
from octavo.loader.fields import Fields, shown
from octavo.loader.formats import dequantise
from octavo.loader.safetensors import SafetensorsFile
from octavo.loader.stored import F32, StoredTensor

I32 = NDArray[np.int32]

_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight outputs each nibble of a word holds, lowest nibble first."""
_BLOCK = 128
_FLOAT8 = {"F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2}
_CT_FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "dense")
METHODS = ("awq", "gptq", "compressed-tensors", "fp8")


def read_quantisation(fields: Fields) -> QuantisedFolder | None:
    """What config.json says about quantised weights. Raises: LoadError naming file and key for what octavo does not read."""
    key = next((name for name in ("quantization_config", "compression_config") if fields.has(name)), None)
    if key is None:
        return None
    section = fields.section(key)
    if section is None:
        raise fields.error(key, f"is {shown(fields.value(key))}, expected a section")
    method = section.text("quant_method", "unknown").lower()
    if method not in METHODS:
        raise section.error(
            "quant_method", f"is {shown(method)}, which is not supported; known: {', '.join(METHODS)}. Load a GGUF file instead"
        )
    if method == "awq":
        version = section.text("version", "gemm").lower()
        if version != "gemm" or section.integer("bits", section.integer("w_bit", 4)) != 4:
            raise section.error("version", f"is {shown(version)}; only the gemm layout of 4 bits is supported")
    if method == "gptq":
        layout = section.text("checkpoint_format", "gptq").lower()
        if layout not in ("gptq", "gptq_v2"):
            raise section.error("checkpoint_format", f"is {shown(layout)}; known: gptq, gptq_v2")
        return QuantisedFolder(method=method, zeros_less_one=layout == "gptq")
    if method == "compressed-tensors":
        layout = section.text("format", "dense").lower()
        if layout not in _CT_FORMATS:
            raise section.error("format", f"is {shown(layout)}; known: {', '.join(_CT_FORMATS)}")
    return QuantisedFolder(method=method)


def find_quantised(
    files: Mapping[str, SafetensorsFile], stored: str, parameter: str, config: QuantisedFolder
) -> StoredTensor | None:
    """The matrix `stored` ("...q_proj.weight") if the files hold it quantised; None if they hold it plainly, or not at all.

    Raises: LoadError naming file and tensor for arrays that do not fit each other.
    """
    stem = stored.removesuffix(".weight")
    arrays = _Arrays(files, stem)
    try:
        if arrays.has("qweight"):
            grid = _awq(arrays) if config.method == "awq" else _gptq(arrays, config.zeros_less_one)
        elif arrays.has("weight_packed"):
            grid = _packed(arrays)
        elif arrays.has("weight") and arrays.dtype("weight") == "I8":
            grid = _whole_bytes(arrays)
        elif arrays.has("weight") and arrays.dtype("weight") in _FLOAT8:
            if len(arrays.shape("weight")) != 2:
                raise ValueError("8-bit floats that are no matrix")
            return ScaledFloats(parameter, arrays.shape("weight"), arrays.source, lambda: _float8(arrays))
        else:
            return None
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
        """As float32, in the array's own shape."""
        name = f"{self._stem}.{end}"
        if not self.has(end):
            raise LoadError(f"{self.source}: {end} is missing; the file is incomplete")
        tensor = self._files[name].tensor(name, name)
        values: F32 = dequantise(tensor.format, tensor.data, tensor.shape[-1]).reshape(tensor.shape)
        return values


def _awq(arrays: _Arrays) -> Grid:
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
    )


def _gptq(arrays: _Arrays, zeros_less_one: bool) -> Grid:
    scales, packed_zeros = arrays.floats("scales"), arrays.words("qzeros")
    rows = scales.shape[1]
    bits = _bits(packed_zeros.shape[1], rows)
    columns = arrays.shape("qweight")[0] * 32 // bits
    zeros = _unpacked(packed_zeros, bits, rows).astype(np.int32)
    if zeros_less_one:
        zeros = (zeros + 1) & ((1 << bits) - 1)
    group = columns // scales.shape[0]
    if arrays.has("g_idx"):
        groups = arrays.raw("g_idx", "I32", np.int32)
        if not np.array_equal(groups, np.arange(columns) // group):
            raise LoadError(
                f"{arrays.source}: its columns are in the order of activations (desc_act), which is not supported; "
                "quantise with act_group_aware, or without desc_act"
            )
    return Grid(
        shape=(rows, columns),
        bits=bits,
        codes=lambda: _unpacked(np.ascontiguousarray(arrays.words("qweight").T), bits, columns),
        scales=np.ascontiguousarray(scales.T),
        zeros=np.ascontiguousarray(zeros.T),
    )


def _packed(arrays: _Arrays) -> Grid:
    """compressed-tensors, pack-quantized: codes and zero points are stored with 2^(bits - 1) added."""
    rows, columns = (int(size) for size in arrays.raw("weight_shape", "I64", np.int64).ravel())
    bits = _bits(arrays.shape("weight_packed")[1], columns)
    scales = arrays.floats("weight_scale").reshape(rows, -1)
    zeros = np.full(scales.shape, 1 << (bits - 1), np.int32)
    if arrays.has("weight_zero_point"):
        packed = np.ascontiguousarray(arrays.words("weight_zero_point").T)
        zeros = np.ascontiguousarray(_unpacked(packed, bits, rows).T).astype(np.int32)
    if arrays.has("weight_g_idx"):
        groups = arrays.raw("weight_g_idx", "I32", np.int32)
        in_order = np.arange(columns) // (columns // scales.shape[1])
        if not np.array_equal(groups, in_order) and not np.array_equal(groups, np.full(columns, -1)):
            raise LoadError(f"{arrays.source}: its columns are in the order of activations (g_idx), which is not supported")
    return Grid((rows, columns), bits, lambda: _unpacked(arrays.words("weight_packed"), bits, columns), scales, zeros)


def _whole_bytes(arrays: _Arrays) -> Grid:
    """compressed-tensors, int-quantized: signed bytes."""
    shape = arrays.shape("weight")
    rows, columns = shape[0], shape[-1]
    scales = arrays.floats("weight_scale")
    scales = np.full((rows, 1), scales.ravel()[0], np.float32) if scales.size == 1 else scales.reshape(rows, -1)
    zeros: I32 = np.full(scales.shape, 128, np.int32)
    if arrays.has("weight_zero_point"):
        zeros = zeros + arrays.raw("weight_zero_point", "I8", np.int8).reshape(-1, scales.shape[-1]).astype(np.int32)
    return Grid(
        (rows, columns),
        8,
        lambda: arrays.raw("weight", "I8", np.int8).view(np.uint8) ^ np.uint8(0x80),
        scales,
        zeros,
    )


def _float8(arrays: _Arrays) -> F32:
    dtype = arrays.dtype("weight")
    values: F32 = arrays.raw("weight", dtype, _FLOAT8[dtype]).astype(np.float32)
    rows, columns = values.shape
    if arrays.has("weight_scale_inv"):
        scales = arrays.floats("weight_scale_inv")
        if scales.shape != (-(-rows // _BLOCK), -(-columns // _BLOCK)):
            raise LoadError(
                f"{arrays.source}: weight_scale_inv has shape {list(scales.shape)}, expected one per square of {_BLOCK}"
            )
        squares = np.repeat(np.repeat(scales, _BLOCK, axis=0)[:rows], _BLOCK, axis=1)[:, :columns]
        return values * squares
    if not arrays.has("weight_scale"):
        return values
    scales = arrays.floats("weight_scale")
    if scales.size not in (1, rows):
        raise LoadError(f"{arrays.source}: weight_scale has shape {list(scales.shape)}, expected one value, or one per output")
    return values * scales.reshape(-1, 1)


def _bits(words: int, count: int) -> int:
    """Of a code, when so many words hold `count` of them. Raises: ValueError for a width that octavo does not read."""
    bits = words * 32 // count
    if bits not in (2, 3, 4, 8):
        raise ValueError(f"{count} codes in {words} words")
    return bits


def _unpacked(words: I32, bits: int, count: int) -> NDArray[np.uint8]:
    """[n, words] -> [n, count] codes of `bits` bits, lowest first and dense across words."""
    if words.shape[1] * 32 < count * bits:
        raise ValueError(f"{count} codes of {bits} bits in {words.shape[1]} words")
    if 32 % bits == 0:
        shifts = np.arange(0, 32, bits, dtype=np.uint32)
        codes = ((words.view(np.uint32)[:, :, None] >> shifts) & np.uint32((1 << bits) - 1)).astype(np.uint8)
        return np.ascontiguousarray(codes.reshape(len(words), -1)[:, :count])
    single = np.unpackbits(words.view(np.uint8).reshape(len(words), -1), axis=1, count=count * bits, bitorder="little")
    dense: NDArray[np.uint8] = (single.reshape(len(words), count, bits) << np.arange(bits, dtype=np.uint8)).sum(
        axis=2, dtype=np.uint8
    )
    return dense
