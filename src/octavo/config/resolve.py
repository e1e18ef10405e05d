"""resolve(): turns every "auto" of an EngineConfig into a value, and refuses what cannot work.

A pure function of the configuration, the checkpoint's header and the machine: nothing is read here. A default may be lowered
to fit, with a notice; a value the user gave is honoured or refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from octavo.config.cache import GIB, blocks_for
from octavo.config.engine import EngineConfig
from octavo.config.loading import CHECKPOINT_METHODS, ROUNDING_METHODS, LoadingConfig
from octavo.config.machine import Machine
from octavo.config.memory_share import share_for_cache
from octavo.config.model import ModelConfig
from octavo.config.resolved import (
    ResolvedBackendConfig,
    ResolvedCacheConfig,
    ResolvedConfig,
    ResolvedSchedulerConfig,
    narrowed,
)
from octavo.config.scheduler import SchedulerConfig
from octavo.config.speculative import speculation_of
from octavo.config.swap_budget import num_swap_blocks
from octavo.config.tenant_weights import parse_tenant_weights
from octavo.errors import ConfigError

MAX_DEFAULT_KV_BYTES = 4 * GIB
DEFAULT_KV_SHARE = 4  # the default budget is 1/4 of the free memory
USEFUL_CONTEXT = 128
"""Tokens. A greeting under a chat template takes about 30."""
MIN_THREAD_LIMIT = 16
"""So many threads may be asked for on any machine: tests and cautious cgroups want more than the CPUs seen here."""

BlockBytes = Callable[[ModelConfig, int, str], int]
"""(model, block_size, kv dtype) to bytes of one KV block over all layers; worker.memory.kv_block_bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A resolved configuration, and what is known beside it.

    block_bytes  size of one KV block over all layers
    notices      sentences about defaults that were lowered to fit; to be printed at start
    """

    config: ResolvedConfig
    model: ModelConfig
    block_bytes: int
    weight_bytes: int
    notices: tuple[str, ...]

    @property
    def num_blocks(self) -> int:
        return self.config.cache.num_blocks

    @property
    def max_model_len(self) -> int:
        return self.config.scheduler.max_model_len

    def describe(self, backend_facts: Mapping[str, str] | None = None) -> list[str]:
        """The lines printed at start: weights, KV budget, context, compute, then the notices.

        backend_facts  what the backend says of itself once it is made (the ISA it chose, its threads)
        """
        cache, scheduler, backend = self.config.cache, self.config.scheduler, self.config.backend
        num_tokens = self.num_blocks * cache.block_size
        num_slots = cache.num_swap_blocks_override or 0
        where = f"file {cache.swap_path}" if cache.swap_path is not None else "memory"
        swap = f"{_size(num_slots * self.block_bytes)} ({where}): {num_slots} blocks, taken as it fills" if num_slots else "off"
        planned = {"device": backend.device, "isa": backend.isa, "threads": str(backend.num_threads)}
        facts = backend_facts if backend_facts is not None else planned
        fill = num_tokens / self.max_model_len
        return [
            f"model    {self.model.architecture}, {self.model.num_layers} layers, weights {_size(self.weight_bytes)}",
            f"KV cache {_size(self.num_blocks * self.block_bytes)} ({cache.kv_cache_dtype}): {self.num_blocks} blocks of "
            f"{cache.block_size} = {num_tokens} tokens, prefix caching {'on' if cache.enable_prefix_caching else 'off'}",
            f"swap     {swap}; preempted sequences: {scheduler.preemption_mode}",
            f"context  {self.max_model_len} tokens per request; the cache holds {fill:.1f} of that length",
            f"step     at most {scheduler.max_num_seqs} sequences, {scheduler.max_num_batched_tokens} tokens, "
            f"{scheduler.chunked_prefill_size} of one prompt; policy {scheduler.scheduler_policy}",
            "compute  " + ", ".join(f"{name} {fact}" for name, fact in facts.items()),
            *(f"note: {notice}" for notice in self.notices),
        ]


def resolve(
    config: EngineConfig, model: ModelConfig, machine: Machine, kv_block_bytes: BlockBytes, *, weight_bytes: int = 0
) -> Resolved:
    """Fill every None and "auto" of `config` for this model on this machine. Resolving twice changes nothing.

    machine       its available_bytes are shared by KV cache and swap space: the weights are loaded already
    weight_bytes  of the weights: printed, and a part of --gpu-memory-utilization
    Raises ConfigError naming the flag, its value, the limit and the way out.
    """
    check_options(config)
    check_method(config.loading, model)
    notices: list[str] = []
    cache = config.cache
    if cache.block_size % 8:
        low = cache.block_size - cache.block_size % 8
        raise ConfigError(
            f"--block-size {cache.block_size} must be a multiple of 8; use {low} or {low + 8}", param="block_size"
        )
    if cache.block_size % 16:
        notices.append(
            f"--block-size {cache.block_size} is no multiple of 16: attention copies what it reads, which may double the time "
            "of decoding"
        )
    kv_dtype = _auto_kv_dtype(config.loading, model) if cache.kv_cache_dtype == "auto" else cache.kv_cache_dtype
    block_bytes = kv_block_bytes(model, cache.block_size, kv_dtype)
    scheduler = fit_step(fit_whole_prompts(config.scheduler, model, notices), notices)
    if scheduler.max_model_len is not None and scheduler.max_model_len > model.max_position:
        raise ConfigError(
            f"--max-model-len {scheduler.max_model_len} is more than the model's context of {model.max_position} tokens; "
            f"use {model.max_position} or less",
            param="max_model_len",
        )
    _note_idle_options(config, notices)
    wanted_len = scheduler.max_model_len or model.max_position
    free_bytes = machine.available_bytes
    share_bytes = share_for_cache(cache.gpu_memory_utilization, machine, weight_bytes, notices)
    num_blocks = _num_blocks(config, wanted_len, scheduler.max_num_seqs, block_bytes, free_bytes, share_bytes)
    if cache.kv_cache_memory is not None and scheduler.max_model_len is None:
        _require_useful_context(model, num_blocks, cache.block_size, block_bytes)
    max_model_len = _fit_context(scheduler.max_model_len, model, num_blocks, cache.block_size, block_bytes, notices)
    left_bytes = max(0, free_bytes - num_blocks * block_bytes)
    num_slots = num_swap_blocks(cache, scheduler.preemption_mode, num_blocks, block_bytes, left_bytes)
    num_threads = _fit_threads(config.backend.num_threads, machine.num_cpus)
    resolved = ResolvedConfig(
        loading=config.loading,
        cache=narrowed(
            ResolvedCacheConfig,
            cache,
            kv_cache_dtype=kv_dtype,
            # Where tokens see all others, equal beginnings have other keys before other ends.
            enable_prefix_caching=cache.enable_prefix_caching and model.causal,
            num_gpu_blocks_override=num_blocks,
            kv_cache_memory=num_blocks * block_bytes / GIB,
            num_swap_blocks_override=num_slots,
            swap_space=num_slots * block_bytes / GIB,
        ),
        scheduler=narrowed(ResolvedSchedulerConfig, scheduler, max_model_len=max_model_len, whole_prompts=not model.causal),
        backend=narrowed(ResolvedBackendConfig, config.backend, num_threads=num_threads),
    )
    return Resolved(config=resolved, model=model, block_bytes=block_bytes, weight_bytes=weight_bytes, notices=tuple(notices))


def check_method(loading: LoadingConfig, model: ModelConfig) -> None:
    """--quantization awq and the like must be what the folder has."""
    asked, found = loading.quantization, None if model.quantised is None else model.quantised.method
    if asked in CHECKPOINT_METHODS and asked != found:
        is_what = "not quantised, or a GGUF file" if found is None else f"quantised with {found}"
        raise ConfigError(f"--quantization {asked}: the model is {is_what}; leave the option out", param="quantization")


def _note_idle_options(config: EngineConfig, notices: list[str]) -> None:
    """Options that were given but mean nothing beside the others."""
    scheduler, loading = config.scheduler, config.loading
    if scheduler.tenant_weights and scheduler.scheduler_policy != "fair":
        notices.append(
            f"--tenant-weights change nothing under --scheduler-policy {scheduler.scheduler_policy}, only under fair"
        )
    if loading.quantization not in ROUNDING_METHODS and loading.quantization_group_size != 32:
        notices.append(
            f"--quantization-group-size {loading.quantization_group_size} changes nothing under --quantization "
            f"{loading.quantization}, only under int4, int8 and w8a8"
        )


def check_options(config: EngineConfig) -> None:
    """Check every field of every section against the type, bounds and choices it declares. Raises ConfigError."""
    for section in dataclasses.fields(config):
        values = getattr(config, section.name)
        for field in dataclasses.fields(_declaring(values)):
            check_option(values, field.name)
    parse_tenant_weights(config.scheduler.tenant_weights)
    speculation_of(config.scheduler.speculative_config)


def check_option(section: Any, name: str, *, param: str | None = None) -> None:
    """Check one field of a section; param is the name it goes by where it was given. Raises ConfigError."""
    (field,) = (field for field in dataclasses.fields(_declaring(section)) if field.name == name)
    _check_value(param or name, getattr(section, name), field.default, field.metadata, str(field.type))


def _declaring(section: Any) -> Any:
    """A resolved section narrows types; type, bounds and choices are those of the section that it resolves."""
    return next(kind for kind in reversed(type(section).__mro__) if dataclasses.is_dataclass(kind))


def _check_value(name: str, value: object, default: object, metadata: Any, annotation: str) -> None:
    flag = "--" + name.replace("_", "-")
    if value is None:
        if default is not None:
            raise ConfigError(f"{flag} must not be None", param=name)
        return
    kind = annotation.split("|")[0].strip()
    wanted: tuple[type, ...] = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}[kind]
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind != "bool"):
        raise ConfigError(f"{flag} is {value!r}; it must be of type {kind}", param=name)
    choices = metadata.get("choices") or ()
    if choices and value not in choices:
        raise ConfigError(f"{flag} is {value!r}; it must be one of {', '.join(map(str, choices))}", param=name)
    low, high = metadata.get("low"), metadata.get("high")
    if isinstance(value, (int, float)) and low is not None and not low <= value <= high:
        raise ConfigError(f"{flag} is {value}; it must be {low} to {high}", param=name)


def fit_step(scheduler: SchedulerConfig, notices: list[str]) -> SchedulerConfig:
    """Neither sequences nor a prefill chunk can be more than the step's tokens: fit what is default, refuse the rest."""
    defaults = {field.name: field.default for field in dataclasses.fields(scheduler)}
    budget = scheduler.max_num_batched_tokens
    largest = max(scheduler.max_num_seqs, scheduler.chunked_prefill_size)
    if budget == defaults["max_num_batched_tokens"] and largest > budget:
        notices.append(
            f"--max-num-batched-tokens is {largest} instead of {budget}, so that a step can be as large as asked for"
        )
        return _with_field(scheduler, "max_num_batched_tokens", largest)
    for field in dataclasses.fields(scheduler):
        value = getattr(scheduler, field.name)
        if field.name not in ("max_num_seqs", "chunked_prefill_size") or value <= budget:
            continue
        flag = "--" + field.name.replace("_", "-")
        if value != field.default:
            raise ConfigError(
                f"{flag} {value} is more than --max-num-batched-tokens {budget}, so it could never be reached; "
                f"lower it to {budget} or raise --max-num-batched-tokens to {value}",
                param=field.name,
            )
        notices.append(f"{flag} is {budget} instead of {value}, because --max-num-batched-tokens is {budget}")
        scheduler = _with_field(scheduler, field.name, budget)
    return scheduler


def fit_whole_prompts(scheduler: SchedulerConfig, model: ModelConfig, notices: list[str]) -> SchedulerConfig:
    """An encoder computes each prompt in one step: make a step that is default large enough, refuse one that is asked for."""
    needed = scheduler.max_model_len or model.max_position
    budget = scheduler.max_num_batched_tokens
    if model.causal or budget >= needed:
        return scheduler
    default = next(field.default for field in dataclasses.fields(scheduler) if field.name == "max_num_batched_tokens")
    if budget != default:
        raise ConfigError(
            f"--max-num-batched-tokens {budget} is less than the context of {needed} tokens, but an encoder computes a prompt "
            f"in one step; raise it to {needed}, or give --max-model-len {budget}",
            param="max_num_batched_tokens",
        )
    notices.append(f"--max-num-batched-tokens is {needed} instead of {budget}, for an encoder computes a prompt in one step")
    scheduler = _with_field(scheduler, "max_num_batched_tokens", needed)
    return _with_field(scheduler, "chunked_prefill_size", max(scheduler.chunked_prefill_size, needed))


def _with_field(scheduler: SchedulerConfig, name: str, value: int) -> SchedulerConfig:
    changes: dict[str, Any] = {name: value}
    return replace(scheduler, **changes)


def _auto_kv_dtype(loading: LoadingConfig, model: ModelConfig) -> str:
    """float32 where weights and arithmetic are; else float16, whose rounding is far below that of int8 activations."""
    if loading.quantization in ROUNDING_METHODS:
        return "float16"
    held = model.dtype if loading.dtype == "auto" else loading.dtype
    return "float32" if held == "float32" else "float16"


def _num_blocks(
    config: EngineConfig, max_model_len: int, max_num_seqs: int, block_bytes: int, free_bytes: int, share_bytes: int | None
) -> int:
    """KV blocks from the override, the budget, the share that was asked for, or the default one of free memory."""
    cache = config.cache
    override, budget_gib = cache.num_gpu_blocks_override, cache.kv_cache_memory
    if override is not None:
        if budget_gib is not None and override * block_bytes > budget_gib * GIB:
            raise ConfigError(
                f"--num-gpu-blocks-override {override} takes {override * block_bytes / GIB:.3f} GiB, more than "
                f"--kv-cache-memory {budget_gib:g} GiB; leave one of them out",
                param="num_gpu_blocks_override",
            )
        num_blocks, flag = override, f"--num-gpu-blocks-override {override}"
    elif budget_gib is not None:
        num_blocks, flag = int(budget_gib * GIB) // block_bytes, f"--kv-cache-memory {budget_gib:g}"
    else:
        useful = max_num_seqs * blocks_for(max_model_len, cache.block_size)
        budget = min(MAX_DEFAULT_KV_BYTES, free_bytes // DEFAULT_KV_SHARE) if share_bytes is None else share_bytes
        return max(1, min(useful, budget // block_bytes))
    if num_blocks < 1:
        raise ConfigError(
            f"{flag} is less than one KV block of {_size(block_bytes)}; give at least {_gib_up(block_bytes)} GiB",
            param="kv_cache_memory",
        )
    if num_blocks * block_bytes > free_bytes:
        raise ConfigError(
            f"{flag} needs {_size(num_blocks * block_bytes)}, but only {_size(free_bytes)} of memory are free for the "
            f"KV cache; lower it or leave it out for an automatic budget",
            param="kv_cache_memory" if override is None else "num_gpu_blocks_override",
        )
    return num_blocks


def _fit_threads(asked: int | None, num_cpus: int) -> int:
    """Threads meet at barriers several times a layer: far more of them than CPUs would spend their time waiting."""
    most = max(MIN_THREAD_LIMIT, 2 * num_cpus)
    if asked is not None and asked > most:
        raise ConfigError(
            f"--num-threads {asked} is far more than the {num_cpus} CPUs this process may use; give at most {most}, or leave "
            "it out for one per CPU",
            param="num_threads",
        )
    return asked or num_cpus


def _require_useful_context(model: ModelConfig, num_blocks: int, block_size: int, block_bytes: int) -> None:
    """A budget that leaves a few tokens of context is a mistake, unless --max-model-len asks for so few."""
    capacity, useful = num_blocks * block_size, min(model.max_position, USEFUL_CONTEXT)
    if capacity < useful:
        raise ConfigError(
            f"the KV cache of {_size(num_blocks * block_bytes)} holds only {capacity} tokens, too few to chat; set "
            f"--kv-cache-memory {_gib_up(blocks_for(useful, block_size) * block_bytes)} or more, or ask for such a short "
            f"context with --max-model-len {capacity}",
            param="kv_cache_memory",
        )


def _fit_context(
    asked: int | None, model: ModelConfig, num_blocks: int, block_size: int, block_bytes: int, notices: list[str]
) -> int:
    """Longest context: what was asked for, else the model's, reduced to what the KV cache can hold for one sequence."""
    capacity = num_blocks * block_size
    if asked is None:
        if model.max_position > capacity:
            notices.append(
                f"the context is {capacity} tokens instead of the model's {model.max_position}, because the KV cache holds no "
                f"more; --kv-cache-memory {_gib_up(blocks_for(model.max_position, block_size) * block_bytes)} would fit all"
            )
        return min(model.max_position, capacity)
    if asked > capacity:
        needed = _gib_up(blocks_for(asked, block_size) * block_bytes)
        raise ConfigError(
            f"--max-model-len {asked} does not fit the KV cache of {_size(num_blocks * block_bytes)}, which holds {capacity} "
            f"tokens; set --kv-cache-memory {needed} or more, or --max-model-len {capacity} or less",
            param="kv_cache_memory",
        )
    return asked


def _gib_up(size_bytes: int) -> str:
    """GiB with three decimals, rounded up, so that the advice given is enough."""
    return f"{-(-size_bytes * 1000 // GIB) / 1000:.3f}"


def _size(size_bytes: int) -> str:
    if size_bytes >= GIB:
        return f"{size_bytes / GIB:.2f} GiB"
    return f"{size_bytes / 2**20:.0f} MiB" if size_bytes >= 2**20 or not size_bytes else f"{size_bytes / 2**10:.0f} KiB"
