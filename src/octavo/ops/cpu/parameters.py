"""CpuParameters: how parameters enter the native backend."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo import _native
from octavo.config.model import RopeConfig
from octavo.loader.parameter import Axis, Role
from octavo.loader.stored import StoredTensor
from octavo.ops.cpu.packing import Packer
from octavo.ops.rope_table import rope_table


class CpuParameters:
    """ParameterOps of the native backend; also remembers what the step checks need.

    weight_bytes    bytes of all packed weights
    max_position    positions the shortest rope table covers (0 before a table was loaded)
    """

    def __init__(self, packer: Packer) -> None:
        self._packer = packer
        self._ropes: dict[tuple[RopeConfig, int], _native.RopeTable] = {}
        self.weight_bytes = 0
        self.max_position = 0

    def load_linear(
        self,
        parts: Sequence[StoredTensor],
        biases: Sequence[StoredTensor | None],
        role: Role = "mlp",
        cut: Axis | None = "output",
    ) -> _native.Linear:
        weight = self._packer.pack(parts, biases, role, cut)
        self.weight_bytes += weight.bytes
        return weight

    def load_vector(self, tensor: StoredTensor, offset: float = 0.0) -> _native.Vector:
        tensor.check_finite()
        return _native.make_vector(np.ascontiguousarray(tensor.to_float32() + np.float32(offset)))

    def load_rope(self, rope: RopeConfig, max_position: int) -> _native.RopeTable:
        key = (rope, max_position)
        if key not in self._ropes:
            cos, sin = rope_table(rope, max_position)
            self._ropes[key] = _native.make_rope_table(np.ascontiguousarray(cos), np.ascontiguousarray(sin))
            self.max_position = min(self.max_position or max_position, max_position)
        return self._ropes[key]
