"""Tuning: measures what AutoTuner decides on, and asks it every few seconds."""

from __future__ import annotations

from statistics import median

from octavo.config.engine import EngineConfig
from octavo.engine.auto_tune import NEARLY_FULL, AutoTuner, Decision, Observation, Settings
from octavo.engine.wire.messages import CoreStats
from octavo.step import StepPlan

INTERVAL_S = 2.0
"""Between two observations: tens of steps of a small model, and one of a change that takes effect."""


class Tuning:
    """The steps since the last observation, and the tuner that hears of them."""

    def __init__(self, config: EngineConfig, now_s: float) -> None:
        self.tuner = AutoTuner(settings_of(config))
        self._since_s = now_s
        self._last = CoreStats()
        self._step_s: list[float] = []
        self._num_tokens = 0

    def note(self, plan: StepPlan, step_s: float) -> None:
        """A step was computed. Its time counts where somebody waited for a next token in it."""
        # Generated ones alone: prompts computed again after a preemption would make a bad change look good.
        self._num_tokens += sum(share.needs_sample for share in plan.sequences)
        if plan.sequences and plan.sequences[0].num_new == 1:
            self._step_s.append(step_s)

    def is_due(self, now_s: float) -> bool:
        return now_s - self._since_s >= INTERVAL_S

    @staticmethod
    def wants_waste(stats: CoreStats) -> bool:
        """Whether the tuner will look at the waste, which costs more than the rest to find out."""
        return stats.num_used_blocks > NEARLY_FULL * stats.num_blocks

    def decide(self, config: EngineConfig, stats: CoreStats, waste: float, now_s: float) -> Decision | None:
        """End the interval with an observation, and hear what to change."""
        last, steps = self._last, sorted(self._step_s)
        num_steps = max(1, stats.num_steps - last.num_steps)
        queries = stats.prefix_queries - last.prefix_queries
        seen = Observation(
            num_running=stats.num_running,
            num_waiting=stats.num_waiting,
            kv_cache_usage=stats.num_used_blocks / stats.num_blocks,
            waste=waste,
            hit_rate=(stats.prefix_hits - last.prefix_hits) / queries if queries > 0 else 0.0,
            preemptions_per_step=(stats.num_preemptions - last.num_preemptions) / num_steps,
            median_step_s=median(steps) if steps else 0.0,
            slow_step_s=steps[min(len(steps) - 1, 95 * len(steps) // 100)] if steps else 0.0,
            tokens_per_s=self._num_tokens / max(1e-9, now_s - self._since_s),
        )
        self._since_s, self._last, self._step_s, self._num_tokens = now_s, stats, [], 0
        return self.tuner.observe(seen, settings_of(config))


def settings_of(config: EngineConfig) -> Settings:
    """What the tuner turns, in a resolved configuration."""
    scheduler = config.scheduler
    return Settings(
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        chunked_prefill_size=scheduler.chunked_prefill_size,
        block_size=config.cache.block_size,
    )
