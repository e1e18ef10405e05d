"""EngineArgs: every engine option in one flat record, as in vLLM; the sections of EngineConfig are made from it."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass
from typing import Any

from octavo.config.backend import BackendConfig
from octavo.config.cache import CacheConfig
from octavo.config.engine import EngineConfig
from octavo.config.loading import DEFAULT_MODEL, LoadingConfig
from octavo.config.resolve import check_options
from octavo.config.scheduler import SchedulerConfig
from octavo.errors import ConfigError


@dataclass(kw_only=True)
class EngineArgs:
    """Names, meanings and defaults are those of the config sections (see their help texts); a test keeps the two equal."""

    model: str = DEFAULT_MODEL
    load_format: str = "auto"
    dtype: str = "auto"
    quantization: str = "auto"
    quantization_group_size: int = 32
    chat_template: str | None = None
    served_model_name: str | None = None
    block_size: int = 16
    kv_cache_memory: float | None = None
    kv_cache_dtype: str = "auto"
    enable_prefix_caching: bool = True
    num_gpu_blocks_override: int | None = None
    swap_space: float | None = None
    swap_path: str | None = None
    num_swap_blocks_override: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 96
    chunked_prefill_size: int = 96
    max_model_len: int | None = None
    target_itl: float | None = None
    scheduler_policy: str = "fcfs"
    max_wait: float = 60.0
    tenant_weights: str | None = None
    admission: str = "optimistic"
    preemption_mode: str = "auto"
    auto_tune: bool = False
    max_num_queued_requests: int = 2048
    max_num_queued_tokens: int | None = None
    queue_timeout: float | None = None
    device: str = "cpu"
    num_threads: int | None = None
    isa: str = "auto"
    enforce_eager: bool = False

    @classmethod
    def from_options(cls, **options: Any) -> EngineArgs:
        """As the constructor, but an unknown option is a ConfigError that names the nearest known one."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in options:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                raise ConfigError(
                    f"unknown engine option {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""), param=name
                )
        return cls(**options)

    def create_engine_config(self) -> EngineConfig:
        """The checked sections. Raises ConfigError naming the option, its value and what is allowed."""
        config = EngineConfig(
            loading=self._section(LoadingConfig),
            cache=self._section(CacheConfig),
            scheduler=self._section(SchedulerConfig),
            backend=self._section(BackendConfig),
        )
        check_options(config)
        return config

    def _section(self, section: type[Any]) -> Any:
        return section(**{field.name: getattr(self, field.name) for field in dataclasses.fields(section)})
