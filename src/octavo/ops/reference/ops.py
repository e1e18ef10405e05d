"""ReferenceOps: the Ops protocol on numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.config.model import RopeConfig
from octavo.errors import ConfigError
from octavo.loader.parameter import Axis, Role
from octavo.loader.stored import StoredTensor
from octavo.ops.arrays import F32, I32
from octavo.ops.interface import AttentionSpec, LookupKey, StepInputs
from octavo.ops.reference import activation, linear, norm, routing
from octavo.ops.reference import rope as rotation
from octavo.ops.reference.attention import KVCache
from octavo.ops.reference.linear import DenseWeight
from octavo.ops.rope_table import RopeTables
from octavo.ops.weight_storage import weight_storage


class ReferenceOps:
    """Operations that compute at once. Tensors are float32 arrays; `inputs` holds the step they work on.

    dtype, quantization, group_size  what float weights are rounded to when loaded, as in LoadingConfig
    """

    def __init__(self, dtype: str, quantization: str, group_size: int = 32) -> None:
        self.dtype = dtype
        self.quantization = quantization
        self.group_size = group_size
        self.cache: KVCache | None = None
        self.inputs: StepInputs | None = None
        self.hidden: F32 | None = None
        self.ropes = RopeTables(lambda cosines, sines: (cosines, sines))
        self.max_position = 0
        """Of the program that runs."""

    def load_linear(
        self,
        parts: Sequence[StoredTensor],
        biases: Sequence[StoredTensor | None],
        role: Role = "mlp",
        cut: Axis | None = "output",
    ) -> DenseWeight:
        storages = [weight_storage(part, role, cut, self.dtype, self.quantization, self.group_size) for part in parts]
        return linear.load_linear(parts, biases, storages)

    def load_vector(self, tensor: StoredTensor, offset: float = 0.0) -> F32:
        return linear.load_vector(tensor, offset)

    def embedding(self, table: DenseWeight, scale: float = 1.0, by: LookupKey = "token") -> F32:
        keys: dict[LookupKey, I32] = {"token": self._step.token_ids, "position": self._step.positions}
        return linear.embedding(table, keys.get(by, np.zeros_like(self._step.positions)), scale)

    def linear(self, x: F32, weight: DenseWeight) -> F32:
        return linear.linear(x, weight)

    def rms_norm(self, x: F32, weight: F32, eps: float) -> F32:
        return norm.rms_norm(x, weight, eps)

    def layer_norm(self, x: F32, weight: F32, bias: F32, eps: float) -> F32:
        return norm.layer_norm(x, weight, bias, eps)

    def add(self, a: F32, b: F32) -> F32:
        return a + b

    def split(self, x: F32, sizes: Sequence[int]) -> tuple[F32, ...]:
        return tuple(np.split(x, np.cumsum(sizes)[:-1], axis=1))

    def rope(self, x: F32, rope: RopeConfig, head_dim: int) -> F32:
        return rotation.rope(x, *self.ropes.table(rope, self.max_position), self._step.positions, head_dim)

    def kv_write(self, k: F32, v: F32, spec: AttentionSpec) -> None:
        self._kv_cache.write(k, v, self._step, spec.layer)

    def paged_attention(self, q: F32, spec: AttentionSpec) -> F32:
        return self._kv_cache.attend(q, self._step, spec)

    def silu_mul(self, gate_up: F32) -> F32:
        return activation.silu_mul(gate_up)

    def gelu_mul(self, gate_up: F32) -> F32:
        return activation.gelu_mul(gate_up)

    def gelu(self, x: F32) -> F32:
        return activation.gelu(x)

    def gate_rows(self, x: F32, gate: F32) -> F32:
        return activation.gate_rows(x, gate)

    def route(self, logits: F32, top_k: int, renormalise: bool) -> F32:
        return routing.route(logits, top_k, renormalise)

    def dispatch(self, x: F32, routes: F32) -> F32:
        return routing.dispatch(x, routes)

    def experts(self, x: F32, weights: Sequence[DenseWeight], routes: F32) -> F32:
        return routing.experts(x, weights, routes)

    def combine(self, x: F32, routes: F32) -> F32:
        return routing.combine(x, routes)

    def hidden_states(self, x: F32) -> F32:
        self.hidden = x
        return x

    def select_rows(self, x: F32) -> F32:
        return x[self._step.logit_rows]

    def softcap(self, x: F32, cap: float) -> F32:
        return activation.softcap(x, cap)

    def scale(self, x: F32, factor: float) -> F32:
        scaled: F32 = x * np.float32(factor)
        return scaled

    @property
    def _step(self) -> StepInputs:
        assert self.inputs is not None, "an operation ran outside a step"
        return self.inputs

    @property
    def _kv_cache(self) -> KVCache:
        if self.cache is None:
            raise ConfigError("the KV cache was not allocated before the first step")
        return self.cache
