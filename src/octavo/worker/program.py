"""LoadedModel: a checkpoint on a device, first its parameters, then a KV cache of some size and a program for steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from octavo.config.engine import EngineConfig
from octavo.config.machine import read_machine
from octavo.config.model import ModelConfig
from octavo.config.resolve import Resolved, resolve
from octavo.config.resolved import ResolvedConfig
from octavo.errors import LoadError
from octavo.loader.checkpoint import Checkpoint
from octavo.models.registry import load_model
from octavo.models.source import LoadedParameters
from octavo.ops.interface import KVCacheSpec, Model, Program
from octavo.ops.registry import AnyBackend, make_backend
from octavo.step import Relayout
from octavo.worker.memory import kv_block_bytes


class LoadedModel:
    """A model's parameters on a device. `allocate` adds what its memory allows: a KV cache, and a program that works on it."""

    def __init__(self, backend: AnyBackend, model: Model[Any, Any], config: ModelConfig, *, eager: bool) -> None:
        self.backend = backend
        self.config = config
        self._model = model
        self._eager = eager
        self._max_position = 0
        self._cache: KVCacheSpec
        self.program: Program[Any]

    def allocate(self, config: ResolvedConfig, max_logits: int) -> None:
        """The KV cache, and a program for steps of the scheduler's limits.

        config       resolved with what `backend.available_bytes` says now
        max_logits   most rows of logits of one step
        Raises: ConfigError for memory that cannot be had, LoadError for a rotation whose angles cannot be computed.
        """
        cache, scheduler = config.cache, config.scheduler
        self._max_position = scheduler.max_model_len
        self._cache = KVCacheSpec(
            num_layers=self.config.num_layers,
            num_blocks=cache.num_blocks,
            num_kv_heads=self.config.num_kv_heads,
            block_size=cache.block_size,
            head_dim=self.config.head_dim,
            dtype=cache.kv_cache_dtype,
        )
        self.backend.allocate_kv_cache(self._cache)
        self.program = self._compile(scheduler.max_num_batched_tokens, max_logits)

    @contextmanager
    def resizing(self, relayout: Relayout, max_logits: int) -> Iterator[None]:
        """Another KV cache, if moves says so, and another program; the body does the rest that can fail.

        When the body ends well the tokens move, which cannot fail, and the old program is spent. If compiling or the body
        raises, all is as before. While tokens move both caches exist, but the old one gives its memory back layer by layer.
        """
        cache, previous, program = self._cache, None, self.program
        if relayout.moves is not None:
            cache = replace(cache, num_blocks=relayout.num_blocks, block_size=relayout.block_size)
            previous = self.backend.replace_kv_cache(cache)
        try:
            self.program = self._compile(relayout.max_num_batched_tokens, max_logits)
            yield
        except BaseException:
            self.program = program
            if previous is not None:
                self.backend.restore_kv_cache(previous)
            raise
        if relayout.moves is not None:
            self.backend.move_tokens(previous, relayout.moves)
        self._cache = cache

    @property
    def longest_short_prompt(self) -> int | None:
        """See RopeConfig.longest_short_prompt."""
        return self.config.rope.longest_short_prompt(self._max_position)

    def _compile(self, max_tokens: int, max_logits: int) -> Program[Any]:
        return self.backend.compile(
            self._model,
            max_tokens=max_tokens,
            max_logits=max_logits,
            # With two halves, the table of positions has twice as many rows.
            max_position=self._max_position * (1 if self.longest_short_prompt is None else 2),
            eager=self._eager,
        )


def load_and_resolve(config: EngineConfig, checkpoint: Checkpoint) -> tuple[LoadedModel, Resolved]:
    """Load the parameters, measure what memory they leave, and resolve `config` with that.

    Raises: LoadError and ConfigError as `load_parameters` and `resolve` do; what no weights could make fit is refused first.
    """
    machine = read_machine()
    planned = resolve(config, checkpoint.config, machine, kv_block_bytes)
    loaded = load_parameters(planned.config, checkpoint)
    machine = replace(machine, available_bytes=loaded.backend.available_bytes())
    return loaded, resolve(config, checkpoint.config, machine, kv_block_bytes, weight_bytes=checkpoint.weight_bytes)


def load_parameters(config: ResolvedConfig, checkpoint: Checkpoint) -> LoadedModel:
    """The checkpoint's model on config.backend.device, its parameters alone.

    config       num_threads is set
    Raises: LoadError for weights that do not fit the architecture, or files that change meanwhile; ConfigError for a device
    that cannot be had.
    """
    backend = make_backend(
        config.backend.device,
        num_threads=config.backend.num_threads,
        isa=config.backend.isa,
        dtype=config.loading.dtype,
        quantization=config.loading.quantization,
        group_size=config.loading.quantization_group_size,
    )
    try:
        model = load_model(checkpoint.config, LoadedParameters(checkpoint.tensors, backend.parameters))
    except LoadError:
        checkpoint.check_unchanged()  # says more about a damaged weight than the damage does
        raise
    checkpoint.check_unchanged()
    return LoadedModel(backend, model, checkpoint.config, eager=config.backend.enforce_eager)
