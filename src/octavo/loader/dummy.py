"""DummyTensors: random weights for a configuration, made when asked for (`load_format` dummy)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import numpy as np

from octavo.config.model import ModelConfig
from octavo.loader.formats import floats
from octavo.loader.parameters import parameter_shapes
from octavo.loader.stored import StoredTensor

SCALE = 0.02
_FORMATS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


class DummyTensors(Mapping[str, StoredTensor]):
    """Every parameter of `config`, normal with deviation SCALE, in the configuration's dtype (f32 for "gguf").

    A tensor is a function of (seed, name) alone and is generated on access, never kept. Norm weights get 1 added, except
    Gemma's, whose model adds it.
    """

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        self._shapes = parameter_shapes(config)
        self._format = _FORMATS.get(config.dtype, "f32")
        self._norm_offset = np.float32(0 if config.architecture == "Gemma3ForCausalLM" else 1)
        self._seed = seed

    def __getitem__(self, name: str) -> StoredTensor:
        shape = self._shapes[name]
        digest = hashlib.sha256(f"{self._seed}:{name}".encode()).digest()
        generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
        rows = shape if len(shape) == 2 else (1, *shape)
        values = generator.standard_normal(rows, dtype=np.float32)
        values *= np.float32(SCALE)
        if name.endswith("norm.weight"):
            values += self._norm_offset
        return StoredTensor(name, shape, self._format, floats.encode(self._format, values), None, f"dummy: {name}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)
