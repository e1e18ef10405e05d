"""CpuParameters: how parameters enter the native backend."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo import _native
from octavo.loader.parameter import Axis, Role
from octavo.loader.stored import StoredTensor
from octavo.ops.cpu.packing import Packer


class CpuParameters:
    """ParameterOps of the native backend.

    weight_bytes    bytes of all packed weights
    """

    def __init__(self, packer: Packer) -> None:
        self._packer = packer
        self.weight_bytes = 0

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
