"""Search: the settings under which a load goes best, by coordinate search over simulations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from octavo.simulator.cost_model import CostModel
from octavo.simulator.fleet import FleetSpec, simulate
from octavo.simulator.replica import EngineSpec
from octavo.simulator.summary import Summary, summarize
from octavo.simulator.trace import Trace, scaled

GOALS = ("throughput", "latency")
CHOICES: dict[str, tuple[Any, ...]] = {
    "max_num_batched_tokens": (64, 96, 128, 256, 512, 1024, 2048, 4096),
    "chunked_prefill_size": (16, 32, 64, 96, 128, 256, 512, 1024, 2048),
    "max_num_seqs": (4, 8, 16, 32, 64, 128, 256),
    "block_size": (8, 16, 32, 64),
    "scheduler_policy": ("fcfs", "sjf", "fair"),
}
"""What is searched, in this order, again and again until a whole round brings nothing."""

MAX_ROUNDS = 3
MAX_RATE = 96
"""Rates are searched on the grid 2^(i / 8) times the trace's own, 9% apart, for i from -MAX_RATE to MAX_RATE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What must hold; None: no bound."""

    itl_p99_s: float | None = None
    ttft_p90_s: float | None = None

    def excess(self, summary: Summary) -> float:
        """By what factor the worse bound is missed; 1 or less: all hold. 0 without bounds."""
        excess = 0.0
        if self.itl_p99_s is not None:
            excess = max(excess, summary.itl_s.p99 / self.itl_p99_s)
        if self.ttft_p90_s is not None:
            excess = max(excess, summary.ttft_s.p90 / self.ttft_p90_s)
        return excess


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Settings and what they bring at a rate: grid step `rate`, that is 2^(rate / 8) times the trace's. holds: all bounds do.

    score   larger is better; the second part decides between equals
    """

    engine: EngineSpec
    rate: int
    summary: Summary
    holds: bool
    score: tuple[float, float]

    @property
    def rate_scale(self) -> float:
        return rate_scale(self.rate)

    def beats(self, other: Trial) -> bool:
        """By half a percent, or, where the scores are as good as equal, by 2% in the second part: less may be chance."""
        margin = 0.005 * abs(other.score[0])
        if abs(self.score[0] - other.score[0]) > margin:
            return self.score[0] > other.score[0]
        return self.score[1] > 1.02 * other.score[1]


def rate_scale(rate: int) -> float:
    """By what factor arrivals are sped up at a step of the grid."""
    return float(2.0 ** (rate / 8))


class Search:
    """What is searched for.

    goal throughput  the most output tokens per second. With bounds: at the highest arrival rate at which they hold, the
                     arrivals being sped up or slowed down for it. Without: at the trace's own rate.
    goal latency     the lowest mean E2E latency at the trace's own rate, among settings that keep the bounds
    """

    def __init__(self, trace: Trace, fleet: FleetSpec, cost: CostModel, bounds: Bounds, goal: str = "throughput") -> None:
        if trace.shared is None and fleet.engine.enable_prefix_caching:
            # No prompt begins like another one: the hashes would take a quarter of the time, and find nothing.
            fleet = replace(fleet, engine=replace(fleet.engine, enable_prefix_caching=False))
        self._trace = trace
        self._fleet = fleet
        self._cost = cost
        self._bounds = bounds
        self._goal = goal
        self._finds_rate = goal == "throughput" and bounds != Bounds()
        self.num_simulations = 0

    def run(self, on_progress: Callable[[int, int], None] | None = None) -> tuple[Trial, Trial]:
        """(the start, the best). on_progress hears (settings tried, an upper bound of them)."""
        most = 1 + MAX_ROUNDS * sum(len(values) for values in CHOICES.values())
        tried = {self._fleet.engine}
        start = best = self._start()
        for _ in range(MAX_ROUNDS):
            before = best
            for name, values in CHOICES.items():
                for engine in variants(best.engine, name, values):
                    if engine in tried:
                        continue
                    tried.add(engine)
                    best = self._challenge(best, engine)
                    if on_progress is not None:
                        on_progress(len(tried), most)
            if best is before:
                break
        return start, best

    def _start(self) -> Trial:
        """The settings to start from, at the highest rate they hold the bounds at; the lowest rate if they never do."""
        engine = self._fleet.engine
        if not self._finds_rate:
            return self._at(engine, 0)
        low, high = -MAX_RATE, MAX_RATE
        best = self._at(engine, low)
        if not best.holds:
            return best
        while high - low > 1:
            middle = (low + high) // 2
            trial = self._at(engine, middle)
            if trial.holds:
                low, best = middle, trial
            else:
                high = middle
        return best

    def _challenge(self, best: Trial, engine: EngineSpec) -> Trial:
        """The better of `best` and other settings, tried at the rate of the best, and at higher ones as long as they hold."""
        trial = self._at(engine, best.rate)
        if self._finds_rate and trial.holds:
            while trial.rate < MAX_RATE:
                higher = self._at(engine, trial.rate + 1)
                if not higher.holds:
                    break
                trial = higher
        return trial if trial.beats(best) else best

    def _at(self, engine: EngineSpec, rate: int) -> Trial:
        """One simulation. Between settings that miss the bounds, the one that misses them by less is better."""
        self.num_simulations += 1
        trace = scaled(self._trace, rate_scale(rate))
        spec = replace(self._fleet, engine=engine)
        summary = summarize(trace, spec, simulate(trace, spec, self._cost))
        excess = self._bounds.excess(summary)
        if excess > 1.0:
            score = (-excess, 0.0)
        elif self._goal == "latency":
            score = (1.0 / summary.e2e_s.mean, 1.0 / summary.ttft_s.p90)
        else:
            score = (summary.output_tokens_per_s, 1.0 / summary.ttft_s.p90)
        return Trial(engine=engine, rate=rate, summary=summary, holds=excess <= 1.0, score=score)


def variants(engine: EngineSpec, name: str, values: tuple[Any, ...]) -> Iterator[EngineSpec]:
    """The settings with one of them changed; what contradicts it follows. The KV cache keeps its size in tokens."""
    scheduler = engine.scheduler
    for value in values:
        if name == "block_size":
            num_blocks = engine.num_blocks * engine.block_size // value
            if num_blocks * value >= engine.max_model_len:
                yield replace(engine, block_size=value, num_blocks=num_blocks)
        elif name == "max_num_batched_tokens":
            yield replace(
                engine,
                scheduler=replace(
                    scheduler,
                    max_num_batched_tokens=value,
                    max_num_seqs=min(scheduler.max_num_seqs, value),
                    chunked_prefill_size=min(scheduler.chunked_prefill_size, value),
                ),
            )
        elif name == "scheduler_policy" or value <= scheduler.max_num_batched_tokens:
            change: dict[str, Any] = {name: value}
            yield replace(engine, scheduler=replace(scheduler, **change))
