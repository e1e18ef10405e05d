"""Matrices packed as AWQ, GPTQ and compressed-tensors pack them, written bit by bit from their documentation; numpy only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_DTYPES = {"float32": "F32", "float16": "F16", "int32": "I32", "int64": "I64", "int8": "I8", "uint8": "F8_E4M3"}


def dense(codes: Array, bits: int) -> Array:
    """[n, count] codes -> int32 [n, words]: code j takes bits j * bits and on of one long number."""
    words = np.zeros((len(codes), -(-codes.shape[1] * bits // 32)), np.uint32)
    for row, values in enumerate(codes):
        number = sum(int(code) << (bits * index) for index, code in enumerate(values))
        for word in range(words.shape[1]):
            words[row, word] = (number >> (32 * word)) & 0xFFFFFFFF
    return words.view(np.int32)


def awq(codes: Array, zeros: Array, scales: Array) -> dict[str, Array]:
    """codes [out, in], zeros and scales [out, groups]."""

    def words(values: Array) -> Array:
        """[n, out] -> [n, out / 8]"""
        eights = values.reshape(len(values), -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]]
        return np.concatenate([dense(row, 4).T for row in eights])

    return {"qweight": words(codes.T), "qzeros": words(zeros.T), "scales": scales.T.astype(np.float16)}


def gptq(codes: Array, zeros: Array, scales: Array, bits: int, less_one: bool) -> dict[str, Array]:
    columns, groups = codes.shape[1], scales.shape[1]
    stored = (zeros - less_one) % (1 << bits)
    return {
        "qweight": np.ascontiguousarray(dense(codes, bits).T),
        "qzeros": dense(stored.T, bits),
        "scales": scales.T.astype(np.float16),
        "g_idx": (np.arange(columns) // (columns // groups)).astype(np.int32),
    }


def packed(codes: Array, zeros: Array | None, scales: Array, bits: int) -> dict[str, Array]:
    """compressed-tensors, pack-quantized."""
    found = {
        "weight_packed": dense(codes, bits),
        "weight_scale": scales.astype(np.float32),
        "weight_shape": np.array(codes.shape, np.int64),
    }
    if zeros is not None:
        found["weight_zero_point"] = np.ascontiguousarray(dense(np.ascontiguousarray(zeros.T), bits).T)
    return found


def write(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Array]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    header: dict[str, Any] = {}
    offset = 0
    for name, tensor in tensors.items():
        header[name] = {
            "dtype": _DTYPES[str(tensor.dtype)],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor).tobytes())
    return folder
