"""StatsLog: the periodic line of throughput and occupancy, and one line per finished request. Both read the ledger."""

from __future__ import annotations

from octavo.engine.ledger import Ledger, RequestRecord, Totals
from octavo.log import fields, get_logger
from octavo.sequence import DEFAULT_TENANT

_logger = get_logger(__name__)


class StatsLog:
    """Call `line` every so often; it tells what happened since the last call."""

    def __init__(self, ledger: Ledger, now_s: float) -> None:
        self._ledger = ledger
        self._last_s = now_s
        self._last = Totals()

    def line(self, now_s: float) -> str | None:
        """The statistics line, or None when nothing ran and nothing runs."""
        ledger, totals, last = self._ledger, self._ledger.totals, self._last
        seconds = max(1e-9, now_s - self._last_s)
        prompt_tokens = totals.prompt_tokens - last.prompt_tokens
        generation_tokens = totals.generation_tokens - last.generation_tokens
        queries = totals.prefix_queries - last.prefix_queries
        hits = totals.prefix_hits - last.prefix_hits
        preemptions = totals.preemptions - last.preemptions
        self._last_s = now_s
        self._last = Totals(
            totals.prompt_tokens,
            totals.generation_tokens,
            preemptions=totals.preemptions,
            prefix_queries=totals.prefix_queries,
            prefix_hits=totals.prefix_hits,
        )
        if not (prompt_tokens or generation_tokens or ledger.num_live):
            return None
        core = ledger.core
        usage = core.num_used_blocks / core.num_blocks if core.num_blocks else 0.0
        line = (
            f"prompt {prompt_tokens / seconds:.1f} tokens/s, generation {generation_tokens / seconds:.1f} tokens/s, "
            f"running {ledger.num_running}, waiting {ledger.num_queued}, KV cache {usage:.1%}"
        )
        if queries:
            line += f", prefix cache hits {hits / queries:.1%}"
        return f"{line}, preemptions {preemptions}" if preemptions else line

    def print_line(self, now_s: float) -> None:
        line = self.line(now_s)
        if line is not None:
            _logger.info("%s", line)


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
