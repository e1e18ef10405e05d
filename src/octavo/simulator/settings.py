"""engine_spec: from the flags of an engine and a profile to the engine that is simulated."""

from __future__ import annotations

from dataclasses import fields

from octavo.config.cache import GIB, CacheConfig
from octavo.config.resolve import MAX_DEFAULT_KV_BYTES, fit_step
from octavo.config.resolved import ResolvedSchedulerConfig, narrowed
from octavo.config.scheduler import SchedulerConfig
from octavo.config.speculative import speculation_of
from octavo.errors import ConfigError
from octavo.simulator.profile import Profile
from octavo.simulator.replica import EngineSpec

HONOURED = frozenset(
    {
        "block_size",
        "kv_cache_memory",
        "enable_prefix_caching",
        "num_gpu_blocks_override",
        "max_num_seqs",
        "max_num_batched_tokens",
        "chunked_prefill_size",
        "max_model_len",
        "scheduler_policy",
        "max_wait",
        "tenant_weights",
        "admission",
        "target_itl",
        "speculative_config",
    }
)
"""The engine's settings that a simulation follows. Others are not offered, rather than taken and ignored."""


def unsupported_settings() -> list[str]:
    """Fields of the cache and scheduler sections that are not simulated."""
    return [field.name for section in (CacheConfig, SchedulerConfig) for field in fields(section) if field.name not in HONOURED]


def engine_spec(
    cache: CacheConfig, scheduler: SchedulerConfig, profile: Profile, draft_acceptance: float = 0.5
) -> EngineSpec:
    """The simulated engine. The KV cache is num_blocks, or kv_cache_memory, or the 4 GiB an engine takes by itself at most.

    max_model_len is the model's context, or what the KV cache holds if less. Raises ConfigError naming the flag.
    """
    if cache.block_size % 8:
        raise ConfigError(f"--block-size is {cache.block_size}; it must be a multiple of 8", param="block_size")
    num_blocks = cache.num_gpu_blocks_override
    if num_blocks is None:
        budget = cache.kv_cache_memory * GIB if cache.kv_cache_memory is not None else MAX_DEFAULT_KV_BYTES
        num_blocks = int(budget / (profile.kv_bytes_per_token * cache.block_size))
    elif cache.kv_cache_memory is not None:
        raise ConfigError("--num-blocks and --kv-cache-memory both set the KV cache's size; give one", param="num_blocks")
    if num_blocks < 1:
        raise ConfigError(
            f"--kv-cache-memory {cache.kv_cache_memory} is less than one block of {cache.block_size} tokens",
            param="kv_cache_memory",
        )
    capacity = num_blocks * cache.block_size
    max_model_len = scheduler.max_model_len
    if max_model_len is None:
        max_model_len = min(profile.max_position, capacity)
    elif max_model_len > capacity:
        raise ConfigError(
            f"--max-model-len {max_model_len} does not fit the KV cache of {capacity} tokens; lower it, or raise "
            f"--kv-cache-memory or --num-blocks",
            param="max_model_len",
        )
    return EngineSpec(
        scheduler=narrowed(ResolvedSchedulerConfig, fit_step(scheduler, []), max_model_len=max_model_len),
        num_blocks=num_blocks,
        block_size=cache.block_size,
        enable_prefix_caching=cache.enable_prefix_caching,
        draft_acceptance=draft_acceptance,
    )


def describe_engine(spec: EngineSpec) -> str:
    """One line: what is simulated."""
    scheduler = spec.scheduler
    number = speculation_of(scheduler.speculative_config).num_speculative_tokens
    guesses = f"; up to {number} guesses, right with the chance {spec.draft_acceptance:g}" if number else ""
    return (
        f"engine   {spec.num_blocks} blocks of {spec.block_size} = {spec.num_blocks * spec.block_size} tokens, context "
        f"{spec.max_model_len}; at most {scheduler.max_num_seqs} sequences and {scheduler.max_num_batched_tokens} tokens per "
        f"step, {scheduler.chunked_prefill_size} of one prompt; policy {scheduler.scheduler_policy}, prefix caching "
        f"{'on' if spec.enable_prefix_caching else 'off'}{guesses}"
    )
