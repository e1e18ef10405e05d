"""Ledger: every request, its state, its single outcome. Usage, metrics, logs and admission read it, so they agree.

It lives where requests enter and answers leave (beside the API, not in the core process), because an outcome must also be
written when the core dies.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Protocol

from octavo.engine.frontend.tenant_service import TenantService
from octavo.engine.wire.messages import CoreStats
from octavo.errors import InvalidRequestError
from octavo.request import DEFAULT_TENANT
from octavo.sequence import FinishReason

_DRAIN_WINDOW_S = 60.0


class RequestState(enum.Enum):
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"


class ShedReason(enum.Enum):
    """Why a request was turned away with 429: too many wait, with too many tokens; or it waited too long itself."""

    QUEUE_REQUESTS = "queue_requests"
    QUEUE_TOKENS = "queue_tokens"
    QUEUE_TIMEOUT = "queue_timeout"


@dataclass(slots=True)
class RequestRecord:
    """The life of one request. Times are on the monotonic clock; num_generated_tokens counts all choices.

    max_tokens: 0 for a request that is pooled.
    num_drafted_tokens: guesses that steps verified; num_accepted_tokens: those of them that are part of the answer.

    estimated_s: how long the scheduler expected it to take from its first step to its end, when that step came.
    """

    request_id: str
    num_prompt_tokens: int
    num_choices: int
    max_tokens: int
    arrival_s: float
    tenant: str = DEFAULT_TENANT
    estimated_s: float | None = None
    state: RequestState = RequestState.QUEUED
    scheduled_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    finished_s: float | None = None
    num_generated_tokens: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    num_drafted_tokens: int = 0
    num_accepted_tokens: int = 0
    outcome: FinishReason | None = None
    error: str | None = None

    # vLLM's names, for scripts that read RequestOutput.metrics; 0.0 is "not yet" there.

    @property
    def num_generation_tokens(self) -> int:
        return self.num_generated_tokens

    @property
    def queued_ts(self) -> float:
        return self.arrival_s

    @property
    def scheduled_ts(self) -> float:
        return self.scheduled_s or 0.0

    @property
    def first_token_ts(self) -> float:
        return self.first_token_s or 0.0

    @property
    def last_token_ts(self) -> float:
        return self.last_token_s or 0.0

    @property
    def first_token_latency(self) -> float:
        """Seconds from the arrival to the first token."""
        return 0.0 if self.first_token_s is None else self.first_token_s - self.arrival_s


class LedgerListener(Protocol):
    """Hears of every entry when it is written; metrics and logs are listeners."""

    def tokens(self, record: RequestRecord, interval_s: float | None) -> None:
        """The record gained tokens; interval_s since its previous ones, None for the first."""

    def finished(self, record: RequestRecord) -> None:
        """The record has its outcome. Called exactly once per request."""


@dataclass(slots=True)
class Totals:
    """Counters since the ledger was opened; they never go down, also when the core restarts."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    finished: dict[FinishReason, int] = field(default_factory=lambda: dict.fromkeys(FinishReason, 0))
    shed: dict[ShedReason, int] = field(default_factory=lambda: dict.fromkeys(ShedReason, 0))
    core_restarts: int = 0
    preemptions: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    prefix_hits_freed: int = 0
    prefix_hits_swapped: int = 0
    swap_preemptions: int = 0
    swap_failures: int = 0
    swap_out_bytes: int = 0
    swap_in_bytes: int = 0
    steps: int = 0
    busy_s: float = 0.0
    reconfigurations: int = 0
    tunings: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_at: list[int] = field(default_factory=list)
    """Accepted guesses by their place behind the last token."""


class Ledger:
    """Not thread-safe: it belongs to the thread (or event loop) of the engine's face."""

    def __init__(self, listeners: Iterable[LedgerListener] = ()) -> None:
        self._live: dict[str, RequestRecord] = {}
        self._num_queued = 0
        self._num_queued_tokens = 0
        self._num_queued_choices = 0
        self._num_live_choices = 0
        self._listeners = list(listeners)
        self._finish_times: deque[float] = deque(maxlen=4096)
        self.totals = Totals()
        self.tenants = TenantService()
        self.core = CoreStats()

    @property
    def num_live(self) -> int:
        return len(self._live)

    @property
    def num_queued(self) -> int:
        """Requests that no step has touched yet."""
        return self._num_queued

    @property
    def num_queued_tokens(self) -> int:
        """Their prompt tokens."""
        return self._num_queued_tokens

    @property
    def num_running(self) -> int:
        return len(self._live) - self._num_queued

    @property
    def live_ids(self) -> list[str]:
        return list(self._live)

    def add_listener(self, listener: LedgerListener) -> None:
        self._listeners.append(listener)

    def get(self, request_id: str) -> RequestRecord | None:
        """The record of a live request, or None once it has ended."""
        return self._live.get(request_id)

    def open(self, record: RequestRecord) -> None:
        """Enter a request. Raises InvalidRequestError when its id is in use."""
        if record.request_id in self._live:
            raise InvalidRequestError(f"request id {record.request_id!r} is in use; choose another", param="request_id")
        self._live[record.request_id] = record
        self._num_queued += 1
        self._num_queued_tokens += record.num_prompt_tokens
        self._num_queued_choices += record.num_choices
        self.tenants.of(record.tenant).requests += 1
        self._num_live_choices += record.num_choices

    def started(self, request_id: str, at_s: float, estimated_s: float | None = None) -> None:
        """The request was scheduled for the first time, and was then expected to take estimated_s seconds."""
        record = self._live.get(request_id)
        if record is not None and record.state is RequestState.QUEUED:
            record.state = RequestState.RUNNING
            record.scheduled_s, record.estimated_s = at_s, estimated_s
            self._num_queued -= 1
            self._num_queued_tokens -= record.num_prompt_tokens
            self._num_queued_choices -= record.num_choices

    def tokens(self, record: RequestRecord, count: int, at_s: float) -> None:
        """A live request gained `count` tokens that are part of its answer."""
        interval_s = None
        if record.first_token_s is None:
            record.first_token_s = at_s
            self._count_prompt(record)
        elif record.last_token_s is not None:
            interval_s = at_s - record.last_token_s
        record.last_token_s = at_s
        record.num_generated_tokens += count
        self.totals.generation_tokens += count
        self.tenants.of(record.tenant).generation_tokens += count
        for listener in self._listeners:
            listener.tokens(record, interval_s)

    def pooled(self, record: RequestRecord) -> None:
        """The prompt of a live request was computed, and its embedding is there: it gains no tokens."""
        self._count_prompt(record)

    def _count_prompt(self, record: RequestRecord) -> None:
        self.totals.prompt_tokens += record.num_prompt_tokens
        tenant = self.tenants.of(record.tenant)
        tenant.prompt_tokens += record.num_prompt_tokens - record.num_cached_tokens
        tenant.cached_tokens += record.num_cached_tokens

    def close(self, request_id: str, outcome: FinishReason, at_s: float, error: str | None = None) -> RequestRecord | None:
        """Write the outcome. The first one stands: a later call for the same request does nothing and returns None."""
        record = self._live.pop(request_id, None)
        if record is None:
            return None
        if record.state is RequestState.QUEUED:
            self._num_queued -= 1
            self._num_queued_tokens -= record.num_prompt_tokens
            self._num_queued_choices -= record.num_choices
        if outcome is FinishReason.SHED:
            self.shed(record.tenant, ShedReason.QUEUE_TIMEOUT)
        self._num_live_choices -= record.num_choices
        record.state = RequestState.FINISHED
        record.outcome, record.error, record.finished_s = outcome, error, at_s
        self.totals.finished[outcome] += 1
        if record.scheduled_s is not None:  # those that end in the queue say nothing of how fast it is served
            self._finish_times.extend([at_s] * record.num_choices)
        for listener in self._listeners:
            listener.finished(record)
        return record

    def shed(self, tenant: str, reason: ShedReason) -> None:
        """A request was turned away with 429. One that finds the queue full never gets a record."""
        self.totals.shed[reason] += 1
        self.tenants.of(tenant).shed += 1

    def core_reported(self, stats: CoreStats) -> None:
        """Take the gauges of the core, and the growth of its counters."""
        totals, last = self.totals, self.core
        totals.preemptions += max(0, stats.num_preemptions - last.num_preemptions)
        totals.prefix_queries += max(0, stats.prefix_queries - last.prefix_queries)
        totals.prefix_hits += max(0, stats.prefix_hits - last.prefix_hits)
        totals.prefix_hits_freed += max(0, stats.prefix_hits_freed - last.prefix_hits_freed)
        totals.prefix_hits_swapped += max(0, stats.prefix_hits_swapped - last.prefix_hits_swapped)
        totals.swap_preemptions += max(0, stats.num_swap_preemptions - last.num_swap_preemptions)
        totals.swap_failures += max(0, stats.num_swap_failures - last.num_swap_failures)
        totals.swap_out_bytes += max(0, stats.swap_out_bytes - last.swap_out_bytes)
        totals.swap_in_bytes += max(0, stats.swap_in_bytes - last.swap_in_bytes)
        totals.steps += max(0, stats.num_steps - last.num_steps)
        totals.busy_s += max(0.0, stats.busy_s - last.busy_s)
        totals.reconfigurations += max(0, stats.num_reconfigurations - last.num_reconfigurations)
        totals.tunings += max(0, stats.num_tunings - last.num_tunings)
        totals.drafts += max(0, stats.num_drafts - last.num_drafts)
        totals.draft_tokens += max(0, stats.num_draft_tokens - last.num_draft_tokens)
        if stats.num_drafts > last.num_drafts:
            pairs = zip_longest(totals.accepted_at, stats.accepted_at, last.accepted_at, fillvalue=0)
            totals.accepted_at = [total + max(0, now - before) for total, now, before in pairs]
        self.core = stats

    def core_lost(self) -> None:
        """The core is gone: its gauges are empty now, and the counters of the next one start from zero."""
        self.core = CoreStats(num_blocks=self.core.num_blocks)
        self.totals.core_restarts += 1

    def num_waiting(self, max_num_seqs: int) -> int:
        """Sequences that will have to wait, one per choice: those queued beyond the seats that are free, and at least
        the queue that the core itself reported (it may lack KV blocks rather than seats)."""
        running_choices = self._num_live_choices - self._num_queued_choices
        beyond = self._num_queued_choices - max(0, max_num_seqs - running_choices)
        return max(0, beyond, min(self.core.num_waiting, self._num_queued_choices))

    def drain_rate(self, now_s: float) -> float:
        """Sequences finished per second over the last minute; 0.0 when there were none."""
        times = self._finish_times
        while times and times[0] < now_s - _DRAIN_WINDOW_S:
            times.popleft()
        if not times:
            return 0.0
        return len(times) / max(1.0, now_s - times[0])

    def check_integrity(self) -> None:
        """Assert that the counts equal what the records say."""
        queued = sum(record.state is RequestState.QUEUED for record in self._live.values())
        assert queued == self._num_queued, (queued, self._num_queued)
        tokens = sum(r.num_prompt_tokens for r in self._live.values() if r.state is RequestState.QUEUED)
        assert tokens == self._num_queued_tokens, (tokens, self._num_queued_tokens)
        waiting = sum(r.num_choices for r in self._live.values() if r.state is RequestState.QUEUED)
        assert waiting == self._num_queued_choices, (waiting, self._num_queued_choices)
        choices = sum(record.num_choices for record in self._live.values())
        assert choices == self._num_live_choices, (choices, self._num_live_choices)
