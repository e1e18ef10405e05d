"""Tuning: measures what AutoTuner decides on, and asks it about every second."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import median

from octavo.config.changes import Changes
from octavo.config.resolved import ResolvedConfig
from octavo.engine.tuning.auto_tune import NEARLY_FULL, AutoTuner, Decision, Observation, Settings
from octavo.engine.tuning.pace import Work
from octavo.engine.wire.messages import CoreStats
from octavo.scheduler.step_time import StepShape, StepTimeModel
from octavo.step import StepPlan

INTERVAL_S = 1.0
MIN_STEPS = 16
MAX_INTERVAL_S = 10.0
"""An observation has a second and so many steps, or is longer: a large model makes only a few in a second."""


@dataclass(frozen=True, slots=True)
class Gauges:
    """The engine after a step. kv_cache_usage: share of the blocks that belong to sequences."""

    num_running: int
    num_waiting: int
    kv_cache_usage: float


@dataclass(slots=True)
class _Interval:
    """Sums over the steps since the last observation; usage: of the used shares of the KV cache."""

    since_s: float
    done: Work = field(default_factory=Work)
    num_steps: int = 0
    num_full: int = 0
    usage: float = 0.0
    most_running: int = 0
    fewest_waiting: int = 2**31
    decode_s: list[float] = field(default_factory=list)


class Tuning:
    """The steps since the last observation, and the tuner that hears of them. step_time: the scheduler's."""

    def __init__(self, config: ResolvedConfig, step_time: StepTimeModel, now_s: float) -> None:
        self.tuner = AutoTuner(settings_of(config))
        self._step_time = step_time
        self._interval = _Interval(now_s)
        self._last = CoreStats()

    def note(self, plan: StepPlan, step_s: float, gauges: Gauges, max_tokens: int) -> None:
        """A step of at most max_tokens was computed; the gauges are those after it."""
        shape, sums = StepShape.of(plan), self._interval
        sums.done.add(shape, step_s)
        sums.num_steps += 1
        sums.num_full += plan.num_tokens >= max_tokens
        sums.usage += gauges.kv_cache_usage
        sums.most_running = max(sums.most_running, len(plan.sequences), gauges.num_running)
        sums.fewest_waiting = min(sums.fewest_waiting, gauges.num_waiting)
        if shape.num_decodes:
            # Only where somebody waited for a next token is a step's length felt.
            sums.decode_s.append(step_s)

    def is_due(self, now_s: float) -> bool:
        passed_s = now_s - self._interval.since_s
        return passed_s >= MAX_INTERVAL_S or (passed_s >= INTERVAL_S and not 0 < self._interval.num_steps < MIN_STEPS)

    @staticmethod
    def wants_waste(stats: CoreStats) -> bool:
        """Whether the tuner will look at the waste, which costs more than the rest to find out."""
        return stats.num_used_blocks > NEARLY_FULL * stats.num_blocks

    def decide(self, config: ResolvedConfig, stats: CoreStats, waste: float, now_s: float) -> Decision | None:
        """End the interval with an observation, and hear what to change."""
        last, sums, steps = self._last, self._interval, sorted(self._interval.decode_s)
        self._last, self._interval = stats, _Interval(now_s)
        num_steps = max(1, sums.num_steps)
        queries, hits = stats.prefix_queries - last.prefix_queries, stats.prefix_hits - last.prefix_hits
        num_preempted = stats.num_preemptions - last.num_preemptions
        num_swapped = stats.num_swap_preemptions - last.num_swap_preemptions
        # A prompt token that the prefix cache had is as good as a computed one; a change that loses hits must not look well.
        sums.done.add(StepShape(hits, 0, 0.0), 0.0)
        seen = Observation(
            num_running=sums.most_running,
            num_waiting=sums.fewest_waiting if sums.num_steps else stats.num_waiting,
            kv_cache_usage=sums.usage / num_steps,
            waste=waste,
            hit_rate=hits / queries if queries > 0 else 0.0,
            full_steps=sums.num_full / num_steps,
            preemptions_per_step=num_preempted / num_steps,
            recomputes_per_step=(num_preempted - num_swapped) / num_steps,
            median_step_s=median(steps) if steps else 0.0,
            slow_step_s=steps[min(len(steps) - 1, 95 * len(steps) // 100)] if steps else 0.0,
            done=sums.done,
            costs=self._step_time.costs,
        )
        return self.tuner.observe(seen, settings_of(config))

    def adopt(self, changes: Changes) -> None:
        """Somebody else changed settings: they are configured from now on, and what was learned before may be wrong."""
        configured = self.tuner.configured
        mine = {name: value for name, value in changes.given().items() if hasattr(configured, name)}
        self.tuner = AutoTuner(replace(configured, **mine))


def settings_of(config: ResolvedConfig) -> Settings:
    """What the tuner turns, in a resolved configuration."""
    scheduler = config.scheduler
    return Settings(
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        chunked_prefill_size=scheduler.chunked_prefill_size,
        block_size=config.cache.block_size,
        admission=scheduler.admission,
        preemption_mode=scheduler.preemption_mode,
        has_swap_space=bool(config.cache.num_swap_blocks_override),
        target_itl_s=None if scheduler.target_itl is None else scheduler.target_itl / 1e3,
    )
