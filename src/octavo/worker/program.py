"""LoadedModel: a checkpoint on a device, ready to run steps of some size over a KV cache of some size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from octavo.config.engine import EngineConfig
from octavo.loader.checkpoint import Checkpoint
from octavo.models.registry import load_model
from octavo.models.source import LoadedParameters
from octavo.ops.interface import Backend, KVCacheSpec, Model, Program
from octavo.ops.registry import make_backend
from octavo.step import Relayout


class LoadedModel:
    """A device, a model's parameters on it, and the program compiled for the present sizes."""

    def __init__(self, backend: Backend, model: Model, cache: KVCacheSpec, program: Program, eager: bool) -> None:
        self.backend = backend
        self.program = program
        self._model = model
        self._cache = cache
        self._eager = eager

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
            self.program = self.backend.compile(
                self._model,
                max_tokens=relayout.max_num_batched_tokens,
                max_logits=max_logits,
                max_seqs=relayout.max_num_seqs,
                eager=self._eager,
            )
            yield
        except BaseException:
            self.program = program
            if previous is not None:
                self.backend.restore_kv_cache(previous)
            raise
        if relayout.moves is not None:
            self.backend.move_tokens(previous, relayout.moves)
        self._cache = cache


def load_program(config: EngineConfig, checkpoint: Checkpoint, num_blocks: int, max_logits: int) -> LoadedModel:
    """The checkpoint's model on config.backend.device, with its KV cache, for steps of the scheduler's limits.

    config       resolved: num_threads and max_model_len are set
    num_blocks   KV blocks to reserve
    max_logits   most rows of logits of one step
    Raises: LoadError for weights that do not fit the architecture, ConfigError for a device or memory that cannot be had.
    """
    model_config, scheduler = checkpoint.config, config.scheduler
    assert config.backend.num_threads is not None, "the configuration is not resolved"
    assert scheduler.max_model_len is not None, "the configuration is not resolved"
    backend = make_backend(
        config.backend.device,
        num_threads=config.backend.num_threads,
        isa=config.backend.isa,
        dtype=config.loading.dtype,
        quantization=config.loading.quantization,
        group_size=config.loading.quantization_group_size,
    )
    model = load_model(model_config, LoadedParameters(checkpoint.tensors, backend.parameters, scheduler.max_model_len))
    cache = KVCacheSpec(
        num_layers=model_config.num_layers,
        num_blocks=num_blocks,
        num_kv_heads=model_config.num_kv_heads,
        block_size=config.cache.block_size,
        head_dim=model_config.head_dim,
        dtype=config.cache.kv_cache_dtype,
    )
    backend.allocate_kv_cache(cache)
    eager = config.backend.enforce_eager
    program = backend.compile(
        model,
        max_tokens=scheduler.max_num_batched_tokens,
        max_logits=max_logits,
        max_seqs=scheduler.max_num_seqs,
        eager=eager,
    )
    return LoadedModel(backend, model, cache, program, eager)
