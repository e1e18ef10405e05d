"""CpuOps: the Ops protocol as instructions of a native recorder."""

from __future__ import annotations

from collections.abc import Sequence

from octavo import _native
from octavo.config.model import RopeConfig
from octavo.ops.interface import AttentionSpec, LookupKey
from octavo.ops.rope_table import RopeTables

_INDEX_KINDS = {
    "token": _native.IndexKind.token,
    "position": _native.IndexKind.position,
    "zero": _native.IndexKind.zero,
}


class CpuOps:
    """Each call emits one instruction: it is recorded, or runs at once, as the recorder has it. Tensors are native views.

    hidden   what the model marked as its last hidden states
    """

    def __init__(self, recorder: _native.Recorder, ropes: RopeTables[_native.RopeTable], max_position: int) -> None:
        self._recorder = recorder
        self._ropes = ropes
        self._max_position = max_position
        self.hidden: _native.View | None = None

    def embedding(self, table: _native.Linear, scale: float = 1.0, by: LookupKey = "token") -> _native.View:
        return self._recorder.embedding(table, scale, _INDEX_KINDS[by])

    def linear(self, x: _native.View, weight: _native.Linear) -> _native.View:
        return self._recorder.linear(x, weight)

    def rms_norm(self, x: _native.View, weight: _native.Vector, eps: float) -> _native.View:
        return self._recorder.rms_norm(x, weight, eps)

    def layer_norm(self, x: _native.View, weight: _native.Vector, bias: _native.Vector, eps: float) -> _native.View:
        return self._recorder.layer_norm(x, weight, bias, eps)

    def add(self, a: _native.View, b: _native.View) -> _native.View:
        return self._recorder.add(a, b)

    def split(self, x: _native.View, sizes: Sequence[int]) -> tuple[_native.View, ...]:
        first, views = 0, []
        for size in sizes:
            views.append(x.slice(first, size))
            first += size
        return tuple(views)

    def rope(self, x: _native.View, rope: RopeConfig, head_dim: int) -> _native.View:
        return self._recorder.rope(x, self._ropes.table(rope, self._max_position), head_dim)

    def kv_write(self, k: _native.View, v: _native.View, spec: AttentionSpec) -> None:
        self._recorder.kv_write(k, v, _layer(spec))

    def paged_attention(self, q: _native.View, spec: AttentionSpec) -> _native.View:
        return self._recorder.attention(q, _layer(spec))

    def silu_mul(self, gate_up: _native.View) -> _native.View:
        return self._recorder.silu_mul(gate_up)

    def gelu_mul(self, gate_up: _native.View) -> _native.View:
        return self._recorder.gelu_mul(gate_up)

    def gelu(self, x: _native.View) -> _native.View:
        return self._recorder.gelu(x)

    def gate_rows(self, x: _native.View, gate: _native.View) -> _native.View:
        return self._recorder.gate_rows(x, gate)

    def route(self, logits: _native.View, top_k: int, renormalise: bool) -> _native.View:
        return self._recorder.route(logits, top_k, renormalise)

    def dispatch(self, x: _native.View, routes: _native.View) -> _native.View:
        return self._recorder.dispatch(x, routes)

    def experts(self, x: _native.View, weights: Sequence[_native.Linear], routes: _native.View) -> _native.View:
        return self._recorder.experts(x, list(weights))

    def combine(self, x: _native.View, routes: _native.View) -> _native.View:
        return self._recorder.combine(x, routes)

    def hidden_states(self, x: _native.View) -> _native.View:
        self.hidden = x
        return x

    def select_rows(self, x: _native.View) -> _native.View:
        return self._recorder.select_rows(x)

    def softcap(self, x: _native.View, cap: float) -> _native.View:
        return self._recorder.softcap(x, cap)

    def scale(self, x: _native.View, factor: float) -> _native.View:
        return self._recorder.scale(x, factor)


def _layer(spec: AttentionSpec) -> _native.AttentionLayer:
    return _native.attention_layer(
        spec.layer,
        spec.num_heads,
        spec.num_kv_heads,
        spec.head_dim,
        spec.scale,
        spec.window or 0,
        spec.softcap or 0.0,
        spec.causal,
    )
