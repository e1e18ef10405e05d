"""Changes: the settings an engine can take while requests run, and the configuration they make of the one in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from octavo.config.cache import GIB, CacheConfig, blocks_for
from octavo.config.resolve import check_option
from octavo.config.resolved import ResolvedCacheConfig, ResolvedConfig, ResolvedSchedulerConfig
from octavo.config.swap_budget import num_swap_blocks
from octavo.errors import ConfigError, did_you_mean

Value = int | float | str | bool | None
ZERO_IS_NONE = ("target_itl", "max_num_queued_tokens", "queue_timeout")
"""Settings that may be absent from a configuration. In a change absence means that they stay, so 0 takes them away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """One request to reconfigure; None leaves a setting as it is. Names and meanings are those of the flags.

    num_blocks and kv_cache_memory both set the KV budget: give one. With a new block_size and neither, the budget stays, but
    for what one sequence of max_model_len needs. The settings in ZERO_IS_NONE are taken away with 0.
    """

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    chunked_prefill_size: int | None = None
    target_itl: float | None = None
    scheduler_policy: str | None = None
    max_wait: float | None = None
    admission: str | None = None
    preemption_mode: str | None = None
    max_num_queued_requests: int | None = None
    max_num_queued_tokens: int | None = None
    queue_timeout: float | None = None
    block_size: int | None = None
    num_blocks: int | None = None
    kv_cache_memory: float | None = None
    swap_space: float | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Changes:
        """From a mapping. Raises ConfigError for an unknown name, with the near one, for null and for nothing at all."""
        known = [field.name for field in fields(cls)]
        for name, value in values.items():
            if name not in known:
                hint = did_you_mean(name, known) or f"; known: {', '.join(known)}"
                raise ConfigError(f"{name[:100]!r} cannot be changed while the engine runs{hint}", param=name[:100])
            if value is None:
                raise ConfigError(f"{name} is null; leave it out to keep it", param=name)
        if not values:
            raise ConfigError(f"nothing to change; give one or more of {', '.join(known)}")
        return cls(**values)

    def given(self) -> dict[str, Any]:
        """The settings to change."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def settings_in_force(config: ResolvedConfig) -> dict[str, Value]:
    """What `Changes` can change, as it is now; 0 for what there is not."""
    values: dict[str, Value] = {}
    for field in fields(Changes):
        section, name = _home(field.name)
        value = getattr(getattr(config, section), name)
        values[field.name] = 0 if value is None else value
    return values


def apply_changes(config: ResolvedConfig, changes: Changes, *, free_bytes: int) -> ResolvedConfig:
    """The configuration with the changes. Pure.

    free_bytes  what a new KV cache could take, the present one being given back
    Raises: ConfigError naming the setting, its value and the limit; nothing is lowered in silence.
    """
    given = changes.given()
    for name, value in given.items():
        section, field_name = _home(name)
        if name in ZERO_IS_NONE and value == 0 and not isinstance(value, bool):
            value = None
        part: Any = replace(getattr(config, section), **{field_name: value})
        check_option(part, field_name, param=name)
        if section == "scheduler":
            config = replace(config, scheduler=part)
    _check_step(config.scheduler, given)
    if given.keys() & {"block_size", "num_blocks", "kv_cache_memory"}:
        config = replace(config, cache=_cache(config, changes, free_bytes))
    if changes.swap_space is not None:
        config = replace(config, cache=_with_swap_space(config, changes.swap_space, free_bytes))
    if config.scheduler.preemption_mode == "swap" and not config.cache.num_swap_blocks:
        raise ConfigError("preemption_mode swap needs a swap space, and this engine has none", param="preemption_mode")
    return config


def _home(name: str) -> tuple[str, str]:
    """Section of EngineConfig and field that hold a setting."""
    if name == "num_blocks":
        return "cache", "num_gpu_blocks_override"
    return ("cache", name) if name in CacheConfig.__dataclass_fields__ else ("scheduler", name)


def _check_step(scheduler: ResolvedSchedulerConfig, given: Mapping[str, Any]) -> None:
    budget = scheduler.max_num_batched_tokens
    if scheduler.whole_prompts and budget < scheduler.max_model_len:
        raise ConfigError(
            f"max_num_batched_tokens is {budget}; an encoder computes a prompt in one step, so that it must be"
            f" {scheduler.max_model_len} (max_model_len) or more",
            param="max_num_batched_tokens",
        )
    for name in ("max_num_seqs", "chunked_prefill_size"):
        value = getattr(scheduler, name)
        if value > budget:
            raise ConfigError(
                f"{name} is {value}, more than max_num_batched_tokens, {budget}, so it could never be reached; change both",
                param=name if name in given else "max_num_batched_tokens",
            )


def _cache(config: ResolvedConfig, changes: Changes, free_bytes: int) -> ResolvedCacheConfig:
    """The KV cache after the changes, in blocks and bytes."""
    cache, max_model_len = config.cache, config.scheduler.max_model_len
    if changes.num_blocks is not None and changes.kv_cache_memory is not None:
        raise ConfigError("num_blocks and kv_cache_memory both set the KV budget; give one of them", param="num_blocks")
    old_bytes = round(cache.kv_cache_memory * GIB)
    old_tokens = cache.num_blocks * cache.block_size
    block_size = changes.block_size or cache.block_size
    if block_size % 8:
        low = block_size - block_size % 8
        raise ConfigError(f"block_size {block_size} must be a multiple of 8; use {low} or {low + 8}", param="block_size")
    block_bytes = cache.block_bytes // cache.block_size * block_size
    param = "block_size"
    if changes.num_blocks is not None:
        param, num_blocks = "num_blocks", changes.num_blocks
    elif changes.kv_cache_memory is not None:
        param, num_blocks = "kv_cache_memory", int(changes.kv_cache_memory * GIB) // block_bytes
    else:
        num_blocks = max(old_tokens // block_size, blocks_for(max_model_len, block_size))
    if num_blocks * block_size < max_model_len:
        needed = blocks_for(max_model_len, block_size)
        raise ConfigError(
            f"{param} leaves {num_blocks} blocks of {block_size} = {num_blocks * block_size} tokens, but max_model_len is "
            f"{max_model_len}: {needed} blocks or more ({needed * block_bytes / GIB:.3f} GiB) are needed",
            param=param,
        )
    new_bytes = num_blocks * block_bytes
    if new_bytes > max(old_bytes, free_bytes):
        raise ConfigError(
            f"{param}: {num_blocks} blocks of {block_size} take {new_bytes / GIB:.2f} GiB, but only {free_bytes / GIB:.2f} GiB "
            f"of memory are free for the KV cache",
            param=param,
        )
    return replace(
        cache,
        block_size=block_size,
        num_gpu_blocks_override=num_blocks,
        kv_cache_memory=new_bytes / GIB,
        # The swap space stays as many bytes. What is in it belongs to blocks of the old size and is computed again.
        num_swap_blocks_override=cache.num_swap_blocks * cache.block_size // block_size,
    )


def _with_swap_space(config: ResolvedConfig, swap_space: float, free_bytes: int) -> ResolvedCacheConfig:
    """The KV cache with a swap space of so many GiB. What it has now it may keep; more must be free beside the KV cache."""
    cache, block_bytes = config.cache, config.cache.block_bytes
    room = cache.num_swap_blocks * block_bytes + max(0, free_bytes - cache.num_blocks * block_bytes)
    wanted = CacheConfig(swap_space=swap_space, swap_path=cache.swap_path)
    num_slots = num_swap_blocks(wanted, config.scheduler.preemption_mode, cache.num_blocks, block_bytes, room)
    return replace(cache, swap_space=num_slots * block_bytes / GIB, num_swap_blocks_override=num_slots)
