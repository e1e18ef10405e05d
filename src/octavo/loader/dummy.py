"""DummyTensors: random weights for a model's parameters, made when asked for (`load_format` dummy)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from octavo.loader.formats import floats
from octavo.loader.parameter import Parameter
from octavo.loader.stored import StoredRows, StoredTensor

SCALE = 0.02
_FORMATS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


class DummyTensors(Mapping[str, StoredTensor]):
    """Every declared parameter, normal with deviation SCALE, norms around the 1 that they multiply with in the end.

    A tensor is a function of (seed, name) alone and is generated on access, never kept.

    dtype    as in ModelConfig; float32 for "gguf"
    nbytes   of all tensors together
    """

    def __init__(self, declared: Sequence[Parameter], dtype: str, seed: int = 0) -> None:
        self._declared = {parameter.name: parameter for parameter in declared}
        self._format = _FORMATS.get(dtype, "f32")
        self._seed = seed
        self.nbytes = sum(math.prod(parameter.shape) for parameter in declared) * floats.ITEM_BYTES[self._format]

    def __getitem__(self, name: str) -> StoredTensor:
        parameter = self._declared[name]
        digest = hashlib.sha256(f"{self._seed}:{name}".encode()).digest()
        generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
        rows = parameter.shape if len(parameter.shape) == 2 else (1, *parameter.shape)
        values = generator.standard_normal(rows, dtype=np.float32)
        values *= np.float32(SCALE)
        if parameter.role == "norm":
            values += np.float32(1 - parameter.offset)
        return StoredRows(name, parameter.shape, self._format, floats.encode(self._format, values), None, f"dummy: {name}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)
