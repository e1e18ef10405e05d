"""EngineCore: requests become sequences; a step is schedule, start, finish, settle. Token ids in, token ids out, no text.

One thread drives it. It validates nothing but survives anything: what raises for one request ends that request.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from octavo.config.changes import Changes
from octavo.config.machine import read_machine
from octavo.config.resolved import ResolvedConfig
from octavo.engine.core.compiling import CompilingRequests
from octavo.engine.core.reconfigure import describe_change, reconfigure
from octavo.engine.core.retry import Worker, describe, run_one_by_one
from octavo.engine.core.stats import core_stats
from octavo.engine.tuning.observe import Gauges, Tuning
from octavo.engine.wire.messages import CoreStats, ReconfigureReport, StepOutputs, TokenOutput
from octavo.errors import ConfigError, OctavoError
from octavo.grammar.compiler import GrammarCompiler
from octavo.grammar.tokens import TokenTable
from octavo.kvcache.manager import KVCacheManager
from octavo.kvcache.report import MemoryReport
from octavo.kvcache.survey import memory_report
from octavo.log import get_logger
from octavo.request import Request
from octavo.scheduler.scheduler import Scheduler
from octavo.scheduler.update import SequenceUpdate
from octavo.sequence import FinishReason, Sequence
from octavo.step import StepPlan, StepResult, SwapReport

MAX_FAILED_STEPS = 32
"""After this many steps in a row in which every sequence failed, the device itself is taken to be broken. So many that a client
with a request that always fails cannot bring the core down by repeating it a few times."""

STATS_INTERVAL_S = 0.05
"""A small model makes many steps in that time. Nobody looks so often, and statistics of each would slow them down."""

_logger = get_logger(__name__)


class WorkerBroken(OctavoError):
    """Every sequence of several steps in a row failed; only a new core process can help."""


class _Flight(NamedTuple):
    """A step that was started and is not settled."""

    plan: StepPlan
    started_s: float


class EngineCore:
    """Scheduler, KV cache and worker under one clock. `clock` returns monotonic seconds."""

    def __init__(
        self,
        config: ResolvedConfig,
        scheduler: Scheduler,
        kv_cache: KVCacheManager,
        worker: Worker,
        clock: Callable[[], float] = time.monotonic,
        free_bytes: Callable[[], int] = lambda: read_machine().available_bytes,
        *,
        depth: int = 1,
        grammars: GrammarCompiler | None = None,
    ) -> None:
        """config is resolved; free_bytes tells how much memory the machine has left for this process.

        depth: most steps in flight. More than one pays where a sequence's step passes through several stages; on one device the
        sequences that are in flight only wait for each other.
        """
        self.config = config
        self._grammars = grammars or GrammarCompiler()
        self._compiling = CompilingRequests()
        self._depth = depth
        self._flights: deque[_Flight] = deque()
        """Oldest first."""
        self._free_bytes = free_bytes
        self._scheduler = scheduler
        self._kv_cache = kv_cache
        self._worker = worker
        self._clock = clock
        self._requests: dict[str, dict[int, Sequence]] = {}
        """Live choices by request id and choice index."""
        self._not_started: dict[int, Sequence] = {}
        """Sequences that no step has touched yet, by seq_id."""
        self._pending: list[TokenOutput] = []
        """News that the next step reports."""
        self._first_timers: list[Sequence] = []
        """Sequences whose first step the next answer reports."""
        self._next_seq_id = 0
        self._num_steps = 0
        self._busy_s = 0.0
        self._num_reconfigurations = 0
        self._num_tunings = 0
        self._tuning = Tuning(config, scheduler.estimator.step_time, clock()) if config.scheduler.auto_tune else None
        self._num_failed_steps = 0
        self._stats_due_s = self._settled_s = -math.inf

    def has_work(self) -> bool:
        """Whether `step` has anything to do."""
        return bool(self._pending or self._compiling) or self._scheduler.has_work()

    def set_tokens(self, table: TokenTable) -> None:
        """The model's tokens, needed before the first request with a grammar."""
        self._grammars.set_tokens(table)

    def add_request(self, request: Request) -> None:
        """Queue all choices of a request. One that cannot be taken gets an error output with the next step."""
        if request.grammar and request.request_id not in self._compiling:
            matcher = self._grammars.compile(request.grammar)
            if not matcher.done():
                self._compiling.add(request, matcher)
                return
        self._queue(request)

    def _queue(self, request: Request) -> None:
        sequences: dict[int, Sequence] = {}
        try:
            if request.request_id in self._requests or request.request_id in self._compiling:
                raise ValueError(f"request id {request.request_id!r} is in use")
            if request.grammar:
                self._grammars.compile(request.grammar).result()
            for sequence in self._fan_out(request):
                self._scheduler.add(sequence)
                sequences[sequence.choice] = sequence
        except Exception as error:
            # Survive anything: whatever is wrong with this request must not reach its neighbours.
            _logger.exception("request %r was refused by the core", request.request_id)
            for sequence in sequences.values():
                self._scheduler.abort(sequence.seq_id)
            reason = FinishReason.ERROR.value
            self._pending.append(TokenOutput(request.request_id, 0, [], finish_reason=reason, error=describe(error)))
            return
        self._requests[request.request_id] = sequences
        self._stats_due_s = -math.inf
        for sequence in sequences.values():
            self._not_started[sequence.seq_id] = sequence

    def abort(self, request_id: str, choice: int = -1) -> None:
        """Drop all choices of a request (-1), or one that has ended by a stop string, in whatever state they are.

        Nothing happens to what has ended already.
        """
        if self._compiling.drop(request_id):
            return
        reason = FinishReason.ABORT if choice < 0 else FinishReason.STOP
        choices = self._requests.get(request_id)
        if choices is None:
            return
        for index in list(choices) if choice < 0 else [choice]:
            sequence = choices.get(index)
            if sequence is not None and self._scheduler.abort(sequence.seq_id, reason):
                self._forget(sequence)

    def step(self) -> StepOutputs:
        """Plan and start steps as far as they may be in flight together, and settle the oldest one.

        Without work the answer only carries statistics. Raises WorkerBroken when retrying is hopeless.
        """
        started_s = self._clock()
        if self._compiling:
            is_idle = not (self._pending or self._flights or self._scheduler.has_work())
            for request in self._compiling.take_done(may_wait=is_idle):
                self._queue(request)
        self.launch()
        if self._flights:
            started_s = self._flights[0].started_s
            self._settle_oldest()
        outputs, self._pending = self._pending, []
        first_timers, self._first_timers = self._first_timers, []
        return StepOutputs(
            outputs,
            [sequence.request.request_id for sequence in first_timers],
            self._due_stats(self._clock()),
            started_s,
            [sequence.expected_s for sequence in first_timers],
        )

    def launch(self) -> None:
        """Plan and start steps until `depth` of them are in flight or there is nothing to plan."""
        while len(self._flights) < self._depth:
            now_s = self._clock()
            plan = self._scheduler.schedule(now_s)
            if plan is None:
                return
            if self._not_started:
                self._first_timers += self._take_started(plan)
            self._flights.append(_Flight(plan, now_s))
            try:
                self._worker.start(plan)
            except BaseException:
                self._abandon()
                raise

    def drain(self) -> None:
        """Settle all steps in flight; the next step reports their news."""
        while self._flights:
            self._settle_oldest()

    def _settle_oldest(self) -> None:
        """Finish and settle the oldest step in flight; its news become pending."""
        flight = self._flights[0]
        plan = flight.plan
        try:
            result = self._finish(plan)
        except BaseException:
            self._abandon()
            raise
        self._flights.popleft()
        self._num_steps += 1
        if result.swap is not None and (result.swap.lost_slots or result.swap.lost_blocks):
            _warn_of_lost_moves(result.swap)
        now_s = self._clock()
        step_s = now_s - max(flight.started_s, self._settled_s)
        self._settled_s = now_s
        self._busy_s += step_s
        self._report(self._scheduler.settle(plan, result, now_s))
        if self._tuning is not None:
            self._note_for_tuning(self._tuning, plan, step_s)

    def _abandon(self) -> None:
        """Ctrl-C, or a broken worker: leave the books in order; the sequences in flight are computed again."""
        self._flights.clear()
        self._worker.drop()
        self._report(self._scheduler.fail((), "the step was interrupted"))

    def _report(self, updates: list[SequenceUpdate]) -> None:
        self._pending += [self._output_of(update) for update in updates]

    def _note_for_tuning(self, tuning: Tuning, plan: StepPlan, step_s: float) -> None:
        # Gauges alone: all statistics, in every step, would slow it down.
        scheduler, cache = self._scheduler, self._kv_cache
        gauges = Gauges(scheduler.num_running, scheduler.num_waiting, 1.0 - cache.num_free / cache.num_blocks)
        tuning.note(plan, step_s, gauges, self.config.scheduler.max_num_batched_tokens)

    def stats(self) -> CoreStats:
        """Gauges now, counters since the start."""
        return core_stats(
            self._scheduler,
            self._kv_cache.stats(),
            num_steps=self._num_steps,
            busy_s=self._busy_s,
            num_reconfigurations=self._num_reconfigurations,
            num_tunings=self._num_tunings,
        )

    def _due_stats(self, now_s: float) -> CoreStats | None:
        """The statistics, unless they were told a moment ago and nothing has come or gone since."""
        if now_s < self._stats_due_s:
            return None
        self._stats_due_s = now_s + STATS_INTERVAL_S
        return self.stats()

    def reconfigure(self, changes: Changes, reason: str = "") -> ReconfigureReport:
        """Change settings between two steps, all or none. No request ends and no byte of an answer changes.

        reason: the tuner's; without one somebody else wants it, and the tuner takes that for what is configured.
        Raises: ConfigError naming the setting that cannot be; everything is as before then.
        """
        self.drain()
        started_s = self._clock()
        done = reconfigure(self.config, changes, self._scheduler, self._kv_cache, self._worker, self._free_bytes)
        self._kv_cache, self.config, self._stats_due_s = done.kv_cache, done.config, -math.inf
        self._num_reconfigurations += 1
        report = done.report(self._clock() - started_s, reason)
        _logger.info("%s", describe_change(report))
        if self._tuning is not None and not reason:
            self._tuning.adopt(changes)
        return report

    def tune(self) -> ReconfigureReport | None:
        """With --auto-tune, and when it is time: change what the tuner wants changed. To be called after every step."""
        tuning, now_s = self._tuning, self._clock()
        if tuning is None or not tuning.is_due(now_s):
            return None
        stats = self.stats()
        decision = tuning.decide(self.config, stats, self.memory_report().waste if tuning.wants_waste(stats) else 0.0, now_s)
        if decision is None:
            return None
        try:
            report = self.reconfigure(decision.changes, decision.reason)
        except ConfigError as error:
            _logger.info("auto-tune wanted %s, which cannot be: %s", decision.changes.given(), error.message)
            tuning.tuner.refused()
            return None
        self._num_tunings += 1
        return report

    def memory_report(self) -> MemoryReport:
        """KV cache and swap space in full: counts, waste, block map, and what each request has or keeps."""
        live = (sequence for choices in self._requests.values() for sequence in choices.values())
        return memory_report(self._kv_cache, self._scheduler.running(), self.config.cache.block_bytes, live)

    def check_integrity(self) -> None:
        """Assert that every block and every sequence is accounted for."""
        self._scheduler.check_integrity()
        if not self._requests:
            assert not self._scheduler.has_work(), "the scheduler has sequences that no request owns"
            assert self._kv_cache.stats().num_used == 0, "blocks are in use though there is no request"
            assert self._kv_cache.stats().num_swapped == 0, "swap slots are kept though there is no request"
            assert not self._not_started, "sequences wait that no request owns"

    def _fan_out(self, request: Request) -> list[Sequence]:
        """One sequence per choice; choices after the first share the first one's prompt blocks."""
        first = self._next_seq_id
        self._next_seq_id += request.sampling.n
        return [
            Sequence(first + choice, request, choice, fork_of=first if choice else None) for choice in range(request.sampling.n)
        ]

    def _take_started(self, plan: StepPlan) -> list[Sequence]:
        """Sequences that are in a step for the first time."""
        pending = self._not_started
        return [pending.pop(share.seq_id) for share in plan.sequences if share.seq_id in pending]

    def _finish(self, plan: StepPlan) -> StepResult:
        """The result of the oldest step; if it failed as a whole, of its sequences one by one."""
        try:
            result = self._worker.finish()
        except Exception as error:
            # The guilty one cannot be told from here, so that each is tried alone and only those that fail again end.
            _logger.exception("a step of %d sequences failed; trying them one by one", len(plan.sequences))
            live = {sequence.seq_id: sequence for choices in self._requests.values() for sequence in choices.values()}
            result = run_one_by_one(self._worker, plan, error, live, self._kv_cache)
            for later in list(self._flights)[1:]:
                self._worker.start(later.plan)
        if plan.sequences and len(result.failed) == len(plan.sequences):
            self._num_failed_steps += 1
            if self._num_failed_steps >= MAX_FAILED_STEPS:
                raise WorkerBroken(
                    f"every sequence failed in {MAX_FAILED_STEPS} steps in a row: {next(iter(result.failed.values()))}"
                )
        else:
            self._num_failed_steps = 0
        return result

    def _output_of(self, update: SequenceUpdate) -> TokenOutput:
        output = TokenOutput(
            update.request_id,
            update.choice,
            update.new_token_ids,
            update.logprobs,
            update.prompt_logprobs.entries if update.prompt_logprobs is not None else [],
            num_cached=update.num_cached_prompt,
            num_drafted=update.num_drafted,
            num_accepted=update.num_accepted,
        )
        if update.finish_reason is not None:
            output.finish_reason = update.finish_reason.value
            output.stop_token_id = update.stop_token_id
            output.error = update.error
            output.pooled = update.pooled
            sequence = self._requests[update.request_id][update.choice]
            output.num_preemptions = sequence.num_preemptions
            self._forget(sequence)
        return output

    def _forget(self, sequence: Sequence) -> None:
        self._stats_due_s = -math.inf
        self._not_started.pop(sequence.seq_id, None)
        choices = self._requests[sequence.request.request_id]
        del choices[sequence.choice]
        if not choices:
            del self._requests[sequence.request.request_id]


def _warn_of_lost_moves(report: SwapReport) -> None:
    reasons = {*report.lost_slots.values(), *report.lost_blocks.values()}
    _logger.warning(
        "%d KV blocks could not be written to the swap space and %d not read back (%s); their sequences are computed again",
        len(report.lost_slots),
        len(report.lost_blocks),
        ", ".join(sorted(reasons)),
    )
