"""load_program: a checkpoint on a device, ready to run steps."""

from __future__ import annotations

from octavo.config.engine import EngineConfig
from octavo.loader.checkpoint import Checkpoint
from octavo.models.parameters import ParameterSource
from octavo.models.registry import load_model
from octavo.ops.interface import Backend, KVCacheSpec, Program
from octavo.ops.registry import make_backend
from octavo.worker.memory import resolve_kv_dtype


def load_program(config: EngineConfig, checkpoint: Checkpoint, num_blocks: int, max_logits: int) -> tuple[Backend, Program]:
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
    )
    source = ParameterSource(checkpoint.tensors, backend.parameters, str(checkpoint.path))
    model = load_model(model_config, source, scheduler.max_model_len)
    backend.allocate_kv_cache(
        KVCacheSpec(
            num_layers=model_config.num_layers,
            num_blocks=num_blocks,
            num_kv_heads=model_config.num_kv_heads,
            block_size=config.cache.block_size,
            head_dim=model_config.head_dim,
            dtype=resolve_kv_dtype(config.cache.kv_cache_dtype),
        )
    )
    program = backend.compile(
        model,
        max_tokens=scheduler.max_num_batched_tokens,
        max_logits=max_logits,
        max_seqs=scheduler.max_num_seqs,
        eager=config.backend.enforce_eager,
    )
    return backend, program
