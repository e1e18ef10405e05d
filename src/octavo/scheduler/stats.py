"""SchedulerStats: the scheduler in figures."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.kvcache.stats import KVCacheStats
from octavo.scheduler.preemption import Preemption


@dataclass(slots=True)
class SchedulerStats:
    """Counts now (running, waiting) and since the start; step_s is how long the last settled step took, schedule to settle."""

    num_running: int
    num_waiting: int
    num_steps: int
    num_scheduled_tokens: int
    num_preemptions: int
    step_s: float
    cache: KVCacheStats
    preemption: Preemption
