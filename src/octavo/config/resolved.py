"""ResolvedConfig: the configuration an engine runs with. config.resolve makes it of an EngineConfig.

Its sections are those of EngineConfig, with a value in every field that may be left to the engine there; so one resolved
configuration can be resolved again, and wherever an EngineConfig is asked for it will do.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

from octavo.config.backend import BackendConfig
from octavo.config.cache import GIB, CacheConfig
from octavo.config.engine import EngineConfig
from octavo.config.scheduler import SchedulerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedCacheConfig(CacheConfig):
    """kv_cache_memory and swap_space are what the blocks take, in GiB; kv_cache_dtype is no longer "auto"."""

    kv_cache_memory: float
    num_gpu_blocks_override: int
    swap_space: float
    num_swap_blocks_override: int

    @property
    def num_blocks(self) -> int:
        """KV blocks, on whatever device."""
        return self.num_gpu_blocks_override

    @property
    def num_swap_blocks(self) -> int:
        return self.num_swap_blocks_override

    @property
    def block_bytes(self) -> int:
        """Bytes of one KV block, over all layers."""
        return round(self.kv_cache_memory * GIB) // self.num_blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSchedulerConfig(SchedulerConfig):
    """whole_prompts: the model is an encoder, so that a step must have room for a prompt of any length."""

    max_model_len: int
    whole_prompts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedBackendConfig(BackendConfig):
    num_threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedConfig(EngineConfig):
    cache: ResolvedCacheConfig
    scheduler: ResolvedSchedulerConfig
    backend: ResolvedBackendConfig


SectionT = TypeVar("SectionT", ResolvedCacheConfig, ResolvedSchedulerConfig, ResolvedBackendConfig)


def narrowed(kind: type[SectionT], section: Any, **found: Any) -> SectionT:
    """A section with the values that were found, as the kind that has no None for them."""
    return kind(**{field.name: getattr(section, field.name) for field in fields(section)} | found)
