"""CpuOps: the Ops protocol as instructions of a native program."""

from __future__ import annotations

from collections.abc import Sequence

from octavo import _native
from octavo.config.model import RopeConfig
from octavo.loader.parameter import Axis, Role
from octavo.loader.stored import StoredTensor
from octavo.ops.cpu.parameters import CpuParameters
from octavo.ops.interface import AttentionSpec


class CpuOps:
    """Each call emits one instruction; an immediate program runs it at once, any other records it. Tensors are native views."""

    def __init__(self, program: _native.Program, parameters: CpuParameters) -> None:
        self._program = program
        self._parameters = parameters

    def load_linear(
        self,
        parts: Sequence[StoredTensor],
        biases: Sequence[StoredTensor | None],
        role: Role = "mlp",
        cut: Axis | None = "output",
    ) -> _native.Linear:
        return self._parameters.load_linear(parts, biases, role, cut)

    def load_vector(self, tensor: StoredTensor, offset: float = 0.0) -> _native.Vector:
        return self._parameters.load_vector(tensor, offset)

    def load_rope(self, rope: RopeConfig, max_position: int) -> _native.RopeTable:
        return self._parameters.load_rope(rope, max_position)

    def embedding(self, table: _native.Linear, scale: float = 1.0) -> _native.View:
        return self._program.embedding(table, scale)

    def linear(self, x: _native.View, weight: _native.Linear) -> _native.View:
        return self._program.linear(x, weight)

    def rms_norm(self, x: _native.View, weight: _native.Vector, eps: float) -> _native.View:
        return self._program.rms_norm(x, weight, eps)

    def add(self, a: _native.View, b: _native.View) -> _native.View:
        return self._program.add(a, b)

    def split(self, x: _native.View, sizes: Sequence[int]) -> tuple[_native.View, ...]:
        first, views = 0, []
        for size in sizes:
            views.append(x.slice(first, size))
            first += size
        return tuple(views)

    def rope(self, x: _native.View, table: _native.RopeTable, head_dim: int) -> _native.View:
        return self._program.rope(x, table, head_dim)

    def kv_write(self, k: _native.View, v: _native.View, spec: AttentionSpec) -> None:
        self._program.kv_write(k, v, _layer(spec))

    def paged_attention(self, q: _native.View, spec: AttentionSpec) -> _native.View:
        return self._program.attention(q, _layer(spec))

    def silu_mul(self, gate_up: _native.View) -> _native.View:
        return self._program.silu_mul(gate_up)

    def gelu_mul(self, gate_up: _native.View) -> _native.View:
        return self._program.gelu_mul(gate_up)

    def select_rows(self, x: _native.View) -> _native.View:
        return self._program.select_rows(x)

    def softcap(self, x: _native.View, cap: float) -> _native.View:
        return self._program.softcap(x, cap)


def _layer(spec: AttentionSpec) -> _native.AttentionLayer:
    return _native.attention_layer(
        spec.layer, spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.scale, spec.window or 0, spec.softcap or 0.0
    )
