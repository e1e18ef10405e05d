"""EngineConfig: the frozen sections that make one engine, composed."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.config.backend import BackendConfig
from octavo.config.cache import CacheConfig
from octavo.config.loading import LoadingConfig
from octavo.config.scheduler import SchedulerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What an engine is built from. Sections may hold None and "auto"; `config.resolve` makes a ResolvedConfig of it."""

    loading: LoadingConfig = field(default_factory=LoadingConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    backend: BackendConfig = field(default_factory=BackendConfig)
