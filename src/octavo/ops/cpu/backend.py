"""CpuBackend: thread pool, packed weights, KV cache memory, programs and sampling of the native core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter

import numpy as np

from octavo import _native
from octavo.config.machine import read_machine
from octavo.errors import ConfigError
from octavo.ops.arrays import F32, I32, U8
from octavo.ops.cpu.ops import CpuOps
from octavo.ops.cpu.packing import Packer
from octavo.ops.cpu.parameters import CpuParameters
from octavo.ops.interface import NO_LOGITS, KVCacheSpec, Model, ParameterOps, StepInputs
from octavo.ops.phase_cost import PhaseCost
from octavo.ops.rope_table import RopeTables
from octavo.ops.sample_rows import SampleResult, SampleRows
from octavo.step import TokenRun

_KV_KINDS = {
    "float32": _native.KvKind.f32,
    "float16": _native.KvKind.f16,
    "bfloat16": _native.KvKind.bf16,
    "int8": _native.KvKind.i8,
}
# The native core takes the arrays of these records in the order of the fields.
_INPUT_FIELDS = attrgetter(*(field.name for field in fields(StepInputs)))
_ROW_FIELDS = attrgetter(*(field.name for field in fields(SampleRows)))
_RESULT_FIELDS = attrgetter(*(field.name for field in fields(SampleResult)))


class CpuBackend:
    """The native backend.

    num_threads   compute threads, the calling one included
    isa           "auto" or one of `usable_isas`
    Raises: ConfigError naming isa when this CPU lacks the variant, or num_threads when the system gives fewer.
    """

    def __init__(
        self, num_threads: int, isa: str = "auto", dtype: str = "auto", quantization: str = "auto", group_size: int = 32
    ) -> None:
        usable = _native.usable_isas()
        if isa != "auto" and isa not in usable:
            raise ConfigError(f"isa {isa} cannot run on this CPU; usable here: {', '.join(usable)}", param="isa")
        self._isa = usable[0] if isa == "auto" else isa
        try:
            self._pool = _native.ThreadPool(num_threads)
        except RuntimeError as error:
            raise ConfigError(
                f"--num-threads {num_threads}: {error}; give fewer, or raise the limits (ulimit -u, ulimit -v, pids.max)",
                param="num_threads",
            ) from None
        self._parameters = CpuParameters(Packer(self._pool, dtype, quantization, group_size))
        self._ropes = RopeTables(_native.make_rope_table)
        self._sampler = _native.Sampler.create(self._pool, self._isa)
        self._result = _empty_result(0, 0)
        self._cache: _native.KvCache | None = None

    @property
    def parameters(self) -> ParameterOps[_native.Linear, _native.Vector]:
        return self._parameters

    def available_bytes(self) -> int:
        return read_machine().available_bytes

    def allocate_kv_cache(self, spec: KVCacheSpec) -> None:
        self._cache = self._reserve(spec)

    def replace_kv_cache(self, spec: KVCacheSpec) -> _native.KvCache:
        assert self._cache is not None, "there is no KV cache to replace"
        previous, self._cache = self._cache, self._reserve(spec)
        return previous

    def restore_kv_cache(self, previous: _native.KvCache) -> None:
        self._cache = previous

    def move_tokens(self, previous: _native.KvCache, moves: Sequence[TokenRun]) -> None:
        assert self._cache is not None
        self._cache.take_tokens(previous, np.array(moves, dtype=np.int32).reshape(-1, 3), self._pool)

    def _reserve(self, spec: KVCacheSpec) -> _native.KvCache:
        kind = _KV_KINDS[spec.dtype]
        try:
            return _native.KvCache(kind, spec.num_layers, spec.num_blocks, spec.num_kv_heads, spec.block_size, spec.head_dim)
        except MemoryError:
            raise ConfigError(
                f"the KV cache of {spec.num_blocks} blocks cannot be allocated; lower kv_cache_memory", param="kv_cache_memory"
            ) from None

    def compile(
        self,
        model: Model[_native.Linear, _native.Vector],
        *,
        max_tokens: int,
        max_logits: int,
        max_position: int,
        eager: bool,
    ) -> TapeProgram | EagerProgram:
        assert self._cache is not None, "the KV cache must be allocated before a model is compiled"
        if eager:
            immediate = _native.Immediate.create(self._pool, self._isa, self._cache, max_tokens, max_logits)
            return EagerProgram(
                immediate, CpuOps(immediate.recorder, self._ropes, max_position), model, self._cache, max_position
            )
        recorder = _native.Recorder.create(self._cache)
        ops = CpuOps(recorder, self._ropes, max_position)
        logits = model.forward(ops)
        recording = recorder.seal(logits, ops.hidden)
        executor = _native.Executor.create(self._pool, self._isa, self._cache, recording, max_tokens, max_logits)
        return TapeProgram(executor, self._cache, max_position, has_head=logits is not None)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        if pairs:
            assert self._cache is not None
            self._cache.copy_blocks(_pairs(pairs))

    def blocks_to_host(self, moves: Sequence[tuple[int, int]], host: U8) -> None:
        assert self._cache is not None, "blocks were moved before the KV cache was allocated"
        self._cache.to_host(_pairs(moves), host, self._pool)

    def blocks_from_host(self, moves: Sequence[tuple[int, int]], host: U8) -> None:
        assert self._cache is not None, "blocks were moved before the KV cache was allocated"
        self._cache.from_host(_pairs(moves), host, self._pool)

    def host_blocks(self) -> U8:
        assert self._cache is not None, "there is no KV cache"
        return self._cache.blocks()

    def sample(self, logits: F32, rows: SampleRows) -> SampleResult:
        result = self._result_of(len(rows.logit_row), max([0, *rows.top_logprobs.tolist()]))
        self._sampler.sample(logits, *_ROW_FIELDS(rows), *_RESULT_FIELDS(result))
        return result

    def logprobs(self, logits: F32, rows: I32, token_ids: I32, top: int) -> SampleResult:
        result = self._result_of(len(rows), top)
        self._sampler.given(logits, rows, token_ids, top, *_RESULT_FIELDS(result))
        return result

    def read_logits(self, logits: F32) -> F32:
        return logits

    def _result_of(self, count: int, top: int) -> SampleResult:
        """Room for a result; that of the last call, if it has the right size."""
        if self._result.top_ids.shape != (count, top):
            self._result = _empty_result(count, top)
        return self._result

    def describe(self) -> dict[str, str]:
        return {
            "backend": "cpu",
            "isa": self._isa,
            "threads": str(self._pool.size),
            "weights": f"{self._parameters.weight_bytes / 2**20:.0f} MiB",
        }


def _pairs(pairs: Sequence[tuple[int, int]]) -> I32:
    return np.array(pairs, dtype=np.int32).reshape(-1, 2)


def _empty_result(count: int, top: int) -> SampleResult:
    return SampleResult(
        token_ids=np.empty(count, np.int32),
        is_finite=np.empty(count, np.bool_),
        logprob=np.empty(count, np.float32),
        rank=np.empty(count, np.int32),
        top_ids=np.empty((count, top), np.int32),
        top_values=np.empty((count, top), np.float32),
    )


def _step_arrays(cache: _native.KvCache, max_position: int, inputs: StepInputs) -> _native.StepArrays:
    return _native.step_arrays(cache, max_position, *_INPUT_FIELDS(inputs))


class TapeProgram:
    """A recorded forward pass; a step is one native call with the GIL released."""

    def __init__(self, executor: _native.Executor, cache: _native.KvCache, max_position: int, *, has_head: bool) -> None:
        self._executor = executor
        self._cache = cache
        self._max_position = max_position
        self._has_head = has_head

    def run(self, inputs: StepInputs) -> F32:
        self._executor.run(_step_arrays(self._cache, self._max_position, inputs))
        return self._executor.read_logits(len(inputs.logit_rows)) if self._has_head else NO_LOGITS

    def read_hidden(self, first: int, last: int) -> F32:
        return self._executor.read_hidden(last)[first:]

    def start_profile(self) -> None:
        self._executor.set_profiling(True)

    def profile(self) -> list[PhaseCost]:
        return [PhaseCost(cost.label, cost.runs, cost.seconds, cost.macs, cost.bytes) for cost in self._executor.profile()]


class EagerProgram:
    """The tape's plain twin: the model's Python runs at every step, instruction by instruction."""

    def __init__(
        self,
        immediate: _native.Immediate,
        ops: CpuOps,
        model: Model[_native.Linear, _native.Vector],
        cache: _native.KvCache,
        max_position: int,
    ) -> None:
        self._immediate = immediate
        self._ops = ops
        self._model = model
        self._cache = cache
        self._max_position = max_position

    def run(self, inputs: StepInputs) -> F32:
        self._immediate.begin(_step_arrays(self._cache, self._max_position, inputs))
        logits = self._model.forward(self._ops)
        return NO_LOGITS if logits is None else self._immediate.read(logits, len(inputs.logit_rows))

    def read_hidden(self, first: int, last: int) -> F32:
        assert self._ops.hidden is not None, "the model marked no hidden states"
        return self._immediate.read(self._ops.hidden, last)[first:]

    def start_profile(self) -> None:
        raise ConfigError("only the tape counts its costs; leave out enforce_eager to profile", param="profile")

    def profile(self) -> list[PhaseCost]:
        return []
