"""Matrix parameters, matrix products, embedding rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from octavo.errors import LoadError
from octavo.loader.formats import evaluate, quantise
from octavo.loader.stored import StoredTensor
from octavo.ops.arrays import F32, I32
from octavo.ops.weight_storage import WeightStorage


@dataclass(frozen=True, slots=True, eq=False)
class DenseWeight:
    """A matrix parameter: values float32 [out, in], bias float32 [out] or None."""

    values: F32
    bias: F32 | None


def load_linear(
    parts: Sequence[StoredTensor], biases: Sequence[StoredTensor | None], storages: Sequence[WeightStorage]
) -> DenseWeight:
    """Parts one under the other, exactly dequantised, then each rounded as its storage says.

    Raises: LoadError naming file and tensor for a NaN or infinity, or when quantization is impossible.
    """
    values = np.concatenate([_stored_values(part, storage) for part, storage in zip(parts, storages, strict=True)])
    if all(bias is None for bias in biases):
        return DenseWeight(values, None)
    pieces = [
        np.zeros(part.shape[0], np.float32) if bias is None else load_vector(bias)
        for part, bias in zip(parts, biases, strict=True)
    ]
    return DenseWeight(values, np.concatenate(pieces))


def load_vector(tensor: StoredTensor, offset: float = 0.0) -> F32:
    """A vector as float32 [n], plus offset. Raises: LoadError naming file and tensor for a NaN or infinity."""
    tensor.check_finite()
    values: F32 = tensor.to_float32() + np.float32(offset)
    return values


def _stored_values(part: StoredTensor, storage: WeightStorage) -> F32:
    part.check_finite()
    values = _rounded_to(part, storage.float_type)
    if storage.codes is None:
        return values
    try:
        return evaluate(quantise(values, storage.codes.kind, storage.codes.group))
    except LoadError as error:
        raise LoadError(f"{part.source}: {error.message}") from None


def _rounded_to(part: StoredTensor, float_type: str | None) -> F32:
    values = part.to_float32()
    if float_type == "bf16":
        return values.astype(ml_dtypes.bfloat16).astype(np.float32)
    if float_type == "f16":
        with np.errstate(over="ignore"):
            rounded = values.astype(np.float16).astype(np.float32)
        if not np.isfinite(rounded).all():
            raise LoadError(f"{part.source}: a value exceeds float16's 65504; use dtype bfloat16 or float32")
        return rounded
    return values


def embedding(table: DenseWeight, token_ids: I32, scale: float) -> F32:
    """Rows of table [vocab, hidden] by token id, times scale -> [rows, hidden]."""
    rows: F32 = table.values[token_ids] * np.float32(scale)
    return rows


def linear(x: F32, weight: DenseWeight) -> F32:
    """x [rows, in] -> [rows, out]. One matrix-vector product per row: a matrix product would let the number of rows choose
    the order of the sums."""
    out = np.empty((x.shape[0], weight.values.shape[0]), np.float32)
    for row in range(x.shape[0]):
        np.dot(weight.values, x[row], out=out[row])
    if weight.bias is not None:
        out += weight.bias
    return out
