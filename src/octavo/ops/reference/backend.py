"""ReferenceBackend: the Backend protocol in plain numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.config.machine import read_machine
from octavo.errors import ConfigError
from octavo.ops.arrays import F32, I32, U8
from octavo.ops.interface import NO_LOGITS, KVCacheSpec, Model, ParameterOps, StepInputs
from octavo.ops.phase_cost import PhaseCost
from octavo.ops.reference import sample
from octavo.ops.reference.attention import KVCache
from octavo.ops.reference.linear import DenseWeight
from octavo.ops.reference.ops import ReferenceOps
from octavo.ops.sample_rows import SampleResult, SampleRows
from octavo.step import TokenRun


class ReferenceProgram:
    """Runs the model op by op on every step; there is nothing to record."""

    def __init__(self, model: Model[DenseWeight, F32], ops: ReferenceOps, max_position: int) -> None:
        self._model = model
        self._ops = ops
        self._max_position = max_position
        self._hidden: F32 | None = None

    def run(self, inputs: StepInputs) -> F32:
        self._ops.inputs, self._ops.max_position = inputs, self._max_position
        try:
            logits = self._model.forward(self._ops)
        finally:
            self._ops.inputs = None
        self._hidden = self._ops.hidden
        return NO_LOGITS if logits is None else logits

    def read_hidden(self, first: int, last: int) -> F32:
        assert self._hidden is not None, "the model marked no hidden states"
        return self._hidden[first:last]

    def start_profile(self) -> None:
        raise ConfigError("the reference backend counts no costs; profile with device cpu", param="profile")

    def profile(self) -> list[PhaseCost]:
        return []


class ReferenceBackend:
    """numpy float32 on whatever machine there is.

    num_threads is accepted but has no effect: numpy's own library decides, and no result depends on it.
    Raises: ConfigError when a kernel variant (isa) is asked for; there are none here.
    """

    def __init__(
        self, num_threads: int = 1, isa: str = "auto", dtype: str = "auto", quantization: str = "auto", group_size: int = 32
    ) -> None:
        if isa != "auto":
            raise ConfigError(f"device reference has no kernel variants; isa is {isa!r}, leave it at auto", param="isa")
        self._ops = ReferenceOps(dtype, quantization, group_size)

    @property
    def parameters(self) -> ParameterOps[DenseWeight, F32]:
        return self._ops

    def available_bytes(self) -> int:
        return read_machine().available_bytes

    def allocate_kv_cache(self, spec: KVCacheSpec) -> None:
        self._ops.cache = KVCache(spec)

    def replace_kv_cache(self, spec: KVCacheSpec) -> KVCache:
        previous, self._ops.cache = self._ops.cache, KVCache(spec)
        assert previous is not None, "there is no KV cache to replace"
        return previous

    def restore_kv_cache(self, previous: KVCache) -> None:
        self._ops.cache = previous

    def move_tokens(self, previous: KVCache, moves: Sequence[TokenRun]) -> None:
        assert self._ops.cache is not None
        self._ops.cache.move_tokens(previous, moves)

    def compile(
        self,
        model: Model[DenseWeight, F32],
        *,
        max_tokens: int,
        max_logits: int,
        max_position: int,
        eager: bool,
    ) -> ReferenceProgram:
        """Numbers of rows and eager make no difference here."""
        return ReferenceProgram(model, self._ops, max_position)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        if pairs:
            assert self._ops.cache is not None, "blocks were copied before the KV cache was allocated"
            self._ops.cache.copy_blocks(pairs)

    def blocks_to_host(self, moves: Sequence[tuple[int, int]], host: U8) -> None:
        assert self._ops.cache is not None, "blocks were moved before the KV cache was allocated"
        for block, row in moves:
            host[row] = np.frombuffer(self._ops.cache.read_block(block), np.uint8)

    def blocks_from_host(self, moves: Sequence[tuple[int, int]], host: U8) -> None:
        assert self._ops.cache is not None, "blocks were moved before the KV cache was allocated"
        for block, row in moves:
            self._ops.cache.write_block(block, host[row].tobytes())

    def host_blocks(self) -> None:
        """Layer by layer, a block does not lie in one piece."""
        return None

    def sample(self, logits: F32, rows: SampleRows) -> SampleResult:
        return sample.sample(logits, rows)

    def logprobs(self, logits: F32, rows: I32, token_ids: I32, top: int) -> SampleResult:
        return sample.logprobs(logits, rows, token_ids, top)

    def read_logits(self, logits: F32) -> F32:
        return logits

    def describe(self) -> dict[str, str]:
        return {"backend": "reference", "isa": f"numpy {np.__version__}", "weights": "float32"}
