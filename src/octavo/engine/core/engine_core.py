"""EngineCore: requests become sequences; a step is schedule, execute, settle. Token ids in, token ids out, no text.

One thread drives it. It validates nothing but survives anything: what raises for one request ends that request.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol

from octavo.config.cache import GIB
from octavo.config.changes import Changes, apply_changes, settings_in_force
from octavo.config.machine import read_machine
from octavo.config.resolved import ResolvedConfig
from octavo.engine.core.stats import core_stats
from octavo.engine.tuning.observe import Gauges, Tuning
from octavo.engine.wire.messages import CoreStats, ReconfigureReport, StepOutputs, TokenOutput
from octavo.errors import ConfigError, OctavoError
from octavo.kvcache.manager import KVCacheManager
from octavo.kvcache.report import MemoryReport
from octavo.kvcache.survey import memory_report
from octavo.log import get_logger
from octavo.request import Request
from octavo.scheduler.policies.registry import policy_for
from octavo.scheduler.reconfigure import plan_relayout
from octavo.scheduler.scheduler import Scheduler
from octavo.scheduler.step_builder import new_sequence
from octavo.scheduler.update import SequenceUpdate
from octavo.sequence import FinishReason, Sequence
from octavo.step import Relayout, RelayoutResult, ScheduledSequence, StepPlan, StepResult, SwapReport

MAX_FAILED_STEPS = 32
"""After this many steps in a row in which every sequence failed, the device itself is taken to be broken. So many that a client
with a request that always fails cannot bring the core down by repeating it a few times."""

STATS_INTERVAL_S = 0.05
"""Steps of a small model come every 4 ms; statistics of all of them would cost 1% of it in the two processes, and nobody looks
that often."""

_logger = get_logger(__name__)


class Worker(Protocol):
    """What the core needs of worker.Worker."""

    def execute(self, plan: StepPlan) -> StepResult: ...

    def reconfigure(self, relayout: Relayout) -> RelayoutResult: ...


class WorkerBroken(OctavoError):
    """Every sequence of several steps in a row failed; only a new core process can help."""


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
    ) -> None:
        """config is resolved; free_bytes tells how much memory the machine has left for this process."""
        self.config = config
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
        """Ends that the next step reports."""
        self._next_seq_id = 0
        self._num_steps = 0
        self._busy_s = 0.0
        self._num_reconfigurations = 0
        self._num_tunings = 0
        self._tuning = Tuning(config, scheduler.estimator.step_time, clock()) if config.scheduler.auto_tune else None
        self._num_failed_steps = 0
        self._stats_due_s = -math.inf

    def has_work(self) -> bool:
        """Whether `step` has anything to do."""
        return bool(self._pending) or self._scheduler.has_work()

    def add_request(self, request: Request) -> None:
        """Queue all choices of a request. One that cannot be taken gets an error output with the next step."""
        sequences: dict[int, Sequence] = {}
        try:
            if request.request_id in self._requests:
                raise ValueError(f"request id {request.request_id!r} is in use")
            for sequence in self._fan_out(request):
                self._scheduler.add(sequence)
                sequences[sequence.choice] = sequence
        except Exception as error:
            # Survive anything: whatever is wrong with this request must not reach its neighbours.
            _logger.exception("request %r was refused by the core", request.request_id)
            for sequence in sequences.values():
                self._scheduler.abort(sequence.seq_id)
            reason = FinishReason.ERROR.value
            self._pending.append(TokenOutput(request.request_id, 0, [], finish_reason=reason, error=_describe(error)))
            return
        self._requests[request.request_id] = sequences
        self._stats_due_s = -math.inf
        for sequence in sequences.values():
            self._not_started[sequence.seq_id] = sequence

    def abort(self, request_id: str, choice: int = -1) -> None:
        """Drop all choices of a request (-1), or one that has ended by a stop string, in whatever state they are.

        Nothing happens to what has ended already.
        """
        reason = FinishReason.ABORT if choice < 0 else FinishReason.STOP
        choices = self._requests.get(request_id)
        if choices is None:
            return
        for index in list(choices) if choice < 0 else [choice]:
            sequence = choices.get(index)
            if sequence is not None:
                self._scheduler.abort(sequence.seq_id, reason)
                self._forget(sequence)

    def step(self) -> StepOutputs:
        """Compute one step; without work the answer only carries statistics. Raises WorkerBroken when retrying is hopeless."""
        started_s = self._clock()
        outputs, self._pending = self._pending, []
        started: list[Sequence] = []
        plan = self._scheduler.schedule(started_s)
        if plan is not None:
            if self._not_started:
                started = self._take_started(plan)
            try:
                result = self._execute(plan)
            except BaseException:
                # Ctrl-C, or a broken worker: leave the books in order; the sequences of the step are computed again.
                self._pending += [self._output_of(update) for update in self._scheduler.fail((), "the step was interrupted")]
                raise
            self._num_steps += 1
            if result.swap is not None and (result.swap.lost_slots or result.swap.lost_blocks):
                _warn_of_lost_moves(result.swap)
            step_s = self._clock() - started_s
            self._busy_s += step_s
            outputs += [self._output_of(update) for update in self._scheduler.settle(plan, result, self._clock())]
            if self._tuning is not None:
                self._note_for_tuning(self._tuning, plan, step_s)
        now_s = self._clock()
        return StepOutputs(
            outputs,
            [sequence.request.request_id for sequence in started],
            self._due_stats(now_s),
            started_s,
            now_s,
            [sequence.expected_s for sequence in started],
        )

    def _note_for_tuning(self, tuning: Tuning, plan: StepPlan, step_s: float) -> None:
        # Gauges alone: all statistics, in every step, would cost 35 us of it.
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
        started_s = self._clock()
        before, kv = self.config, self._kv_cache.stats()
        # Blocks that were never used cost no memory yet; the others come back when the cache is replaced.
        free_bytes = self._free_bytes() + max(kv.num_used, kv.num_cached) * self._block_bytes
        after = apply_changes(before, changes, free_bytes=free_bytes)
        plan, result = plan_relayout(self._scheduler, self._kv_cache, before, after), RelayoutResult()
        if plan.relayout is not None:
            try:
                result = self._worker.reconfigure(plan.relayout)
            except MemoryError:
                raise ConfigError("there is not enough memory for these settings", param=next(iter(changes.given()))) from None
        if plan.slots is not None:
            plan.manager.swap.resize(plan.slots, result.lost_slots)
        self._scheduler.reconfigure(after.scheduler, plan.manager, plan.victims, result.swap_block_s)
        if after.scheduler.scheduler_policy != before.scheduler.scheduler_policy:
            self._scheduler.set_policy(policy_for(after.scheduler, self._scheduler.estimator))
        self._kv_cache, self.config, self._stats_due_s = plan.manager, after, -math.inf
        self._num_reconfigurations += 1
        old, new = settings_in_force(before), settings_in_force(after)
        moves = plan.relayout.moves if plan.relayout is not None else None
        report = ReconfigureReport(
            config=after,
            changed={name: (old[name], new[name]) for name in new if old[name] != new[name]},
            num_preempted=len(plan.victims),
            num_moved_tokens=sum(count for _, _, count in moves or ()),
            duration_s=self._clock() - started_s,
            reason=reason,
        )
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
        return memory_report(self._kv_cache, self._scheduler.running(), self._block_bytes, live)

    @property
    def _block_bytes(self) -> int:
        return round(self.config.cache.kv_cache_memory * GIB) // self._kv_cache.num_blocks

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

    def _execute(self, plan: StepPlan) -> StepResult:
        try:
            result = self._worker.execute(plan)
        except Exception as error:
            # The guilty one cannot be told from here, so that each is tried alone and only those that fail again end.
            _logger.exception("a step of %d sequences failed; trying them one by one", len(plan.sequences))
            result = self._execute_one_by_one(plan, error)
        if plan.sequences and len(result.failed) == len(plan.sequences):
            self._num_failed_steps += 1
            if self._num_failed_steps >= MAX_FAILED_STEPS:
                raise WorkerBroken(
                    f"every sequence failed in {MAX_FAILED_STEPS} steps in a row: {next(iter(result.failed.values()))}"
                )
        else:
            self._num_failed_steps = 0
        return result

    def _execute_one_by_one(self, plan: StepPlan, error: Exception) -> StepResult:
        """Run every share of a failed step as a step of its own.

        The worker may have applied any part of the plan, so each share tells it everything anew; computing a position again
        writes the same keys and values.
        """
        merged = StepResult(plan.step_id, [])
        if plan.removed or plan.block_copies or plan.swap_out or plan.swap_in:
            alone = StepPlan(plan.step_id, [], plan.block_copies, plan.removed, plan.swap_out, plan.swap_in)
            try:
                merged.swap = self._worker.execute(alone).swap
            except Exception:
                _logger.exception("the block copies of the step failed too; all its sequences end")
                merged.failed = {share.seq_id: _describe(error) for share in plan.sequences}
                return merged
        live = {seq.seq_id: seq for choices in self._requests.values() for seq in choices.values()}
        for share in plan.sequences:
            alone = StepPlan(plan.step_id, [self._restated(share, live[share.seq_id])], [], [share.seq_id])
            try:
                result = self._worker.execute(alone)
            except Exception as guilt:
                _logger.exception("sequence %d failed alone too and ends", share.seq_id)
                merged.failed[share.seq_id] = _describe(guilt)
                continue
            merged.sampled += result.sampled
            merged.prompt_logprobs += result.prompt_logprobs
            merged.failed.update(result.failed)
            if merged.swap is not None and result.swap is not None:
                merged.swap.not_run += result.swap.not_run
        return merged

    def _restated(self, share: ScheduledSequence, sequence: Sequence) -> ScheduledSequence:
        """The same share for a worker that knows nothing of the sequence: all tokens, the whole block table."""
        return ScheduledSequence(
            seq_id=share.seq_id,
            num_computed=share.num_computed,
            num_new=share.num_new,
            new_block_ids=self._kv_cache.block_ids(share.seq_id),
            needs_sample=share.needs_sample,
            new=new_sequence(sequence),
        )

    def _output_of(self, update: SequenceUpdate) -> TokenOutput:
        output = TokenOutput(
            update.request_id,
            update.choice,
            update.new_token_ids,
            update.logprobs,
            update.prompt_logprobs.entries if update.prompt_logprobs is not None else [],
            num_cached=update.num_cached_prompt,
        )
        if update.finish_reason is not None:
            output.finish_reason = update.finish_reason.value
            output.stop_token_id = update.stop_token_id
            output.error = update.error
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


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def describe_change(report: ReconfigureReport) -> str:
    """A reconfiguration in one line of the log."""
    changed = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in report.changed.items()) or "nothing"
    cause = f" ({report.reason})" if report.reason else ""
    return (
        f"reconfigured{cause}: {changed}; {report.num_moved_tokens} tokens moved, {report.num_preempted} sequences preempted, "
        f"{1000 * report.duration_s:.1f} ms"
    )
