"""StatsLog: the periodic line of throughput and occupancy, and warnings in words. RequestLog: a line per finished request."""

from __future__ import annotations

from dataclasses import dataclass, replace

from octavo.engine.frontend.ledger import Ledger, RequestRecord, Totals
from octavo.log import fields, get_logger
from octavo.request import DEFAULT_TENANT

FULL_USAGE = 0.85
"""Share of the KV cache in use from which a warning is due; the next one only after it was below CALM_USAGE."""
CALM_USAGE = 0.75
JUMP_FACTOR = 2.0
JUMP_LEAST_S = 0.005
"""An iteration time of JUMP_FACTOR times the usual one, and at least this much longer, is a jump. Steps of a small model vary
by a few milliseconds for no reason that anybody could act on."""
USUAL_WEIGHT = 0.3
"""Weight of the newest interval in the usual iteration time."""

_logger = get_logger(__name__)


@dataclass(slots=True)
class Interval:
    """What happened between two lines. iteration_s is the mean time of a step, 0 without one; hit_rate None without a query."""

    seconds: float
    iteration_s: float
    prompt_tokens: int
    generation_tokens: int
    preemptions: int
    hit_rate: float | None
    num_running: int
    num_waiting: int
    kv_cache_usage: float

    @property
    def is_idle(self) -> bool:
        return not (self.prompt_tokens or self.generation_tokens or self.num_running or self.num_waiting)


class StatsLog:
    """Call `print_lines` every so often; it tells what happened since the last call."""

    def __init__(self, ledger: Ledger, now_s: float) -> None:
        self._ledger = ledger
        self._last_s = now_s
        self._last = Totals()
        self._usual_s = 0.0
        self._is_full = False

    def print_lines(self, now_s: float) -> None:
        """The line, unless nothing ran and nothing runs, and what an operator should know."""
        interval = self.interval(now_s)
        if not interval.is_idle:
            _logger.info("%s", stats_line(interval))
        for warning in self.warnings(interval):
            _logger.warning("%s", warning)

    def interval(self, now_s: float) -> Interval:
        """What happened since the last call."""
        ledger, totals, last, core = self._ledger, self._ledger.totals, self._last, self._ledger.core
        seconds, self._last_s = max(1e-9, now_s - self._last_s), now_s
        self._last = replace(totals, finished=dict(totals.finished))
        steps, queries = totals.steps - last.steps, totals.prefix_queries - last.prefix_queries
        return Interval(
            seconds=seconds,
            iteration_s=(totals.busy_s - last.busy_s) / steps if steps else 0.0,
            prompt_tokens=totals.prompt_tokens - last.prompt_tokens,
            generation_tokens=totals.generation_tokens - last.generation_tokens,
            preemptions=totals.preemptions - last.preemptions,
            hit_rate=(totals.prefix_hits - last.prefix_hits) / queries if queries else None,
            num_running=ledger.num_running,
            num_waiting=ledger.num_queued,
            kv_cache_usage=core.num_used_blocks / core.num_blocks if core.num_blocks else 0.0,
        )

    def warnings(self, interval: Interval) -> list[str]:
        """Sentences that say what is wrong and what to change; each once per episode."""
        found = []
        usage = interval.kv_cache_usage
        if usage > FULL_USAGE and not self._is_full:
            found.append(
                f"the KV cache is {usage:.0%} full and {interval.preemptions} sequences were preempted lately: raise "
                f"--kv-cache-memory, or lower --max-num-seqs so that fewer requests share it; POST /admin/reconfigure changes "
                f"both while requests run"
            )
        self._is_full = usage > (CALM_USAGE if self._is_full else FULL_USAGE)
        usual_s, now_s = self._usual_s, interval.iteration_s
        if now_s > 0.0:
            if usual_s > 0.0 and now_s > JUMP_FACTOR * usual_s and now_s - usual_s > JUMP_LEAST_S:
                found.append(f"a step takes {1000 * now_s:.0f} ms, it was {1000 * usual_s:.0f} ms: {_advice(interval)}")
            self._usual_s = now_s if usual_s == 0.0 else usual_s + USUAL_WEIGHT * (now_s - usual_s)
        return found


def stats_line(interval: Interval) -> str:
    """One line of name=value fields."""
    return fields(
        iteration_time_ms=round(1000 * interval.iteration_s, 1),
        num_running_seqs=interval.num_running,
        num_waiting=interval.num_waiting,
        kv_cache_usage=f"{interval.kv_cache_usage:.1%}",
        prompt_tokens_per_s=round(interval.prompt_tokens / interval.seconds, 1),
        generation_tokens_per_s=round(interval.generation_tokens / interval.seconds, 1),
        prefix_cache_hit_rate=None if interval.hit_rate is None else f"{interval.hit_rate:.1%}",
        preemptions=interval.preemptions,
    )


def _advice(interval: Interval) -> str:
    """What makes steps shorter again, judged by what filled them."""
    if interval.prompt_tokens > 4 * interval.generation_tokens:
        return "long prompts fill the steps; a smaller --chunked-prefill-size makes them shorter for those that generate"
    if interval.num_running > 1:
        return (
            f"{interval.num_running} requests share it; a smaller --max-num-seqs makes steps shorter and lets others wait. If "
            f"the load has not changed, another program takes the CPU: see --num-threads"
        )
    return "the load has not changed, so another program probably takes the CPU; fewer --num-threads may help"


class RequestLog:
    """A listener of the ledger that prints one line per finished request; prompts and answers are never printed."""

    def tokens(self, record: RequestRecord, interval_s: float | None) -> None:
        """Nothing is printed per token."""

    def finished(self, record: RequestRecord) -> None:
        assert record.outcome is not None and record.finished_s is not None
        first = record.first_token_s
        _logger.info(
            "request %s",
            fields(
                id=record.request_id,
                outcome=record.outcome.value,
                tenant=record.tenant if record.tenant != DEFAULT_TENANT else None,
                prompt=record.num_prompt_tokens,
                cached=record.num_cached_tokens,
                generated=record.num_generated_tokens,
                ttft_s=None if first is None else first - record.arrival_s,
                estimated_s=record.estimated_s,
                total_s=record.finished_s - record.arrival_s,
                preempted=record.num_preemptions or None,
                error=record.error,
            ),
        )
