"""EngineArgs: every engine option in one flat record, as in vLLM; the sections of EngineConfig are made from it."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.config.backend import BackendConfig
from octavo.config.cache import CacheConfig
from octavo.config.engine import EngineConfig
from octavo.config.flags import flags_of
from octavo.config.loading import DEFAULT_MODEL, LoadingConfig
from octavo.config.resolve import check_options
from octavo.config.scheduler import SchedulerConfig
from octavo.config.vllm import translate
from octavo.engine.cli_args import add_options, parsed_options
from octavo.errors import ConfigError
from octavo.log import get_logger

if TYPE_CHECKING:
    from typing_extensions import Self

_LOG_OPTIONS = ("disable_log_stats", "disable_log_requests")
"""Options of the server that vLLM's engines take, too."""

_logger = get_logger(__name__)


@dataclass(init=False)
class EngineArgs:
    """Names, meanings and defaults are those of the config sections (see their help texts); a test keeps the two equal.

    The options of vLLM that are not there are taken, too, as docs/vllm.md says: those that ask for nothing pass, those without
    a meaning here are named in one warning, the others are refused.
    """

    model: str = DEFAULT_MODEL
    tokenizer: str | None = None
    revision: str | None = None
    load_format: str = "auto"
    dtype: str = "auto"
    quantization: str = "auto"
    quantization_group_size: int = 32
    chat_template: str | None = None
    served_model_name: str | None = None
    generation_config: str = "auto"
    override_generation_config: str | None = None
    pooler_config: str | None = None
    seed: int | None = None
    block_size: int = 16
    kv_cache_memory: float | None = None
    gpu_memory_utilization: float | None = None
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
    speculative_config: str | None = None
    max_num_queued_requests: int = 2048
    max_num_queued_tokens: int | None = None
    queue_timeout: float | None = None
    device: str = "cpu"
    num_threads: int | None = None
    isa: str = "auto"
    enforce_eager: bool = False

    def __init__(self, model: str | None = None, **options: Any) -> None:
        """None means the default. Raises ConfigError for an option that is unknown or not there, with what to use instead."""
        self._take(model, options)

    def _take(self, model: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
        """Set the fields; returns the options of the server among those given."""
        translated = translate({"model": model, **options})
        for warning in translated.warnings:
            _logger.warning("%s", warning)
        engine = {field.name: field.default for field in dataclasses.fields(EngineArgs)}
        server = {name: value for name, value in translated.values.items() if name not in engine}
        for name in server:
            if name not in _LOG_OPTIONS:
                raise ConfigError(f"{name} is an option of octavo serve, not of an engine", param=name)
        for name, default in engine.items():
            setattr(self, name, translated.values.get(name, default))
        return server

    @classmethod
    def add_cli_args(cls, parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        """Give a parser these options, and vLLM's others; returns it."""
        add_options(parser, [field.name for field in dataclasses.fields(cls)])
        return parser

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace) -> Self:
        """What was parsed by such a parser; attributes that are no options of an engine are left alone. Raises ConfigError."""
        options = parsed_options(args, [field.name for field in dataclasses.fields(cls)])
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
        """Fields may have been set since the start, in any of their spellings."""
        values = {flag.name: flag.normal(getattr(self, flag.name)) for flag in flags_of(section)}
        return section(**{name: value for name, value in values.items() if value is not None})


@dataclass(init=False)
class AsyncEngineArgs(EngineArgs):
    """EngineArgs and what AsyncLLMEngine logs: a line of statistics every ten seconds, a line per finished request."""

    disable_log_stats: bool = False
    disable_log_requests: bool = True

    def __init__(self, model: str | None = None, **options: Any) -> None:
        """As EngineArgs; vLLM's enable_log_requests is the opposite of disable_log_requests."""
        server = self._take(model, options)
        self.disable_log_stats = server.get("disable_log_stats", False)
        self.disable_log_requests = server.get("disable_log_requests", True)
