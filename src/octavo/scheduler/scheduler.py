"""Scheduler: decides what every step computes, and what each settled step means for its sequences.

There is no prefill phase and no decode phase: a sequence whose num_computed is behind its num_tokens catches up, by as many
tokens as the step's budgets leave for it. A step goes through

    schedule(now) -> StepPlan -> (the worker runs it) -> settle(plan, result, now)

Several steps may be in flight: planned and not settled. They run and are settled in the order of their plans, and a sequence
has a share of one of them at most. `add` and `abort` may come at any moment; `fail` ends the flight of all.
"""

from __future__ import annotations

from collections.abc import Iterable

from octavo.config.resolved import ResolvedSchedulerConfig
from octavo.kvcache.block_table import Growth
from octavo.kvcache.manager import KVCacheManager, PrefixMatch
from octavo.scheduler.admission import AdmissionRule, match_of
from octavo.scheduler.budget import StepBudget, StepLimits
from octavo.scheduler.checks import check_books, check_runnable, fitting_max_model_len
from octavo.scheduler.deadlines import Deadlines
from octavo.scheduler.drafter import NO_DRAFTS, Drafter
from octavo.scheduler.estimator import Estimator
from octavo.scheduler.in_flight import InFlight
from octavo.scheduler.order import Order, SortKey
from octavo.scheduler.policies.interface import Policy
from octavo.scheduler.preemption import NO_MOVES, Preemption
from octavo.scheduler.queues import WaitingQueue
from octavo.scheduler.speculation import Speculation
from octavo.scheduler.step_builder import StepBuilder, WorkerMemory, kind_of
from octavo.scheduler.update import SequenceUpdate, end_of, settle_pooled, settle_share
from octavo.sequence import FinishReason, Sequence, SequenceState
from octavo.step import ShareKind, StepPlan, StepResult


class Scheduler:
    """Continuous batching under max_num_seqs, max_num_batched_tokens and chunked_prefill_size or target_itl.

    Order of a step: running decodes, then running prefills and waiting sequences in the policy's order. No more sequences run
    than a step has tokens, so that every running decode advances in every step and the first prefill does too.

    Blocks: a running sequence that finds no free block has the last one in the policy's order preempted (see preemption.py). To
    keep that rare, a waiting sequence is admitted only if its blocks fit beside those that all running sequences will need, as
    AdmissionRule counts them. With nothing running it is always admitted: max_model_len fits the pool.
    """

    def __init__(
        self,
        config: ResolvedSchedulerConfig,
        manager: KVCacheManager,
        policy: Policy,
        estimator: Estimator | None = None,
        preemption: Preemption | None = None,
        drafter: Drafter | None = None,
    ) -> None:
        """estimator: the policy's own. Raises ConfigError when the pool cannot hold max_model_len."""
        self.max_model_len = fitting_max_model_len(config, manager)
        self.estimator = estimator or Estimator()
        self.preemption = preemption or Preemption(self.estimator.step_time)
        self.speculation = Speculation(config, self.estimator.step_time, drafter)
        self._manager = manager
        self._order = Order(policy, config.max_wait)
        self._deadlines = Deadlines(config.queue_timeout)
        self._set_budgets(config)
        self._sequences: dict[int, Sequence] = {}
        """All that have not ended; each is either running or waiting."""
        self._running: dict[int, Sequence] = {}
        self._waiting = WaitingQueue(self._order)
        self._in_flight = InFlight()
        self._ended: list[SequenceUpdate] = []
        """Ends decided while scheduling; reported by the next settle."""
        self._worker = WorkerMemory()
        self._num_steps = self.num_preemptions = 0
        self._scheduled_s = 0.0

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def running(self) -> list[Sequence]:
        """The sequences that have blocks, in order of admission."""
        return list(self._running.values())

    def victim(self, candidates: Iterable[Sequence]) -> Sequence:
        """Which of these running sequences the policy would preempt first."""
        return self._order.victim(candidates, self._scheduled_s)

    def has_work(self) -> bool:
        """Whether there is something to plan or to settle."""
        return bool(self._sequences or self._ended or self._in_flight)

    def add(self, sequence: Sequence) -> None:
        """Put a new sequence into the waiting queue. Raises an InvalidRequestError for one that could never run."""
        is_new = sequence.seq_id not in self._sequences and sequence.state is SequenceState.WAITING
        assert is_new, f"sequence {sequence.seq_id} was added before"
        check_runnable(sequence, self.max_model_len)
        self._sequences[sequence.seq_id] = sequence
        self._deadlines.add(sequence)
        self._enqueue(sequence)

    def abort(self, seq_id: int, reason: FinishReason = FinishReason.ABORT) -> bool:
        """End a sequence in whatever state it is: no update follows. False if it has ended already or was never known.

        reason is STOP when the caller ends it for a stop string. A result that is still on its way is dropped; the blocks the
        step in flight may be writing to are freed when it is settled.
        """
        sequence = self._sequences.get(seq_id)
        if sequence is None:
            return False
        if reason is FinishReason.STOP:
            self.estimator.observe_end(sequence)
        self._end(sequence, reason)
        return True

    def schedule(self, now: float) -> StepPlan | None:
        """Plan the next step; None when there is nothing to plan before another step is settled.

        A plan without sequences is made when all it has to bring about is the report of a sequence that ended while planning.
        Nothing is planned behind a step that moves blocks: whether they arrive is not known before it is settled.
        """
        if self._in_flight.moves_blocks:
            return None
        self._scheduled_s = now
        for sequence, end in self._deadlines.expired(now):
            self._ended.append(self._end_with_update(sequence, None, end))
        step = StepBuilder(StepBudget(self._limits.max_tokens, self._limits.chunk_size), self._worker)
        self._fill(step, now)
        moves = self._manager.moves()
        if not step.shares and not moves[0] and (self._in_flight or not self._ended):
            return None
        self._num_steps += 1
        plan = step.finish(self._num_steps, self._worker.take_removed(), moves)
        self._manager.seal_step()
        self._in_flight.add(plan, self._running, now)
        return plan

    def settle(self, plan: StepPlan, result: StepResult, now: float) -> list[SequenceUpdate]:
        """Take in what the oldest step in flight produced: progress, tokens, ends. Sequences without news have no update."""
        assert result.step_id == plan.step_id, f"this is the result of step {result.step_id}"
        step_s, report = self._in_flight.settle(plan, now), result.swap or NO_MOVES
        self._in_flight.land(plan, self._running, self._manager, report.lost_slots, report.lost_blocks)
        self.preemption.observe(plan, report, now)
        if plan.sequences and not (result.failed or plan.swap_in or plan.swap_out):
            self.estimator.observe_step(plan, step_s, sum(tokens.num_accepted for tokens in result.sampled))
        updates, self._ended = self._ended, []
        sampled = {tokens.seq_id: tokens for tokens in result.sampled}
        prompt_logprobs = {entry.seq_id: entry for entry in result.prompt_logprobs}
        pooled = {vector.seq_id: vector for vector in result.pooled}
        for share in plan.sequences:
            seq_id = share.seq_id
            sequence = self._running.get(seq_id)
            if sequence is None:
                continue
            error = result.failed.get(seq_id)
            if error is not None:
                updates.append(self._end_with_update(sequence, error))
                continue
            if seq_id in report.not_run:
                self._requeue(sequence)
                continue
            try:
                if sequence.request.pooling is not None:
                    update = settle_pooled(sequence, share, pooled.get(seq_id))
                else:
                    update = settle_share(
                        sequence, share, sampled.get(seq_id), prompt_logprobs.get(seq_id), self.max_model_len
                    )
                self.speculation.settle(sequence, share.draft_token_ids, update)
                self._commit(sequence, update)
            except Exception as fault:  # whatever is wrong with this result, the others' are good
                update = self._end_with_update(sequence, f"{type(fault).__name__}: {fault}")
            if update is not None:
                updates.append(update)
        return updates

    def fail(self, seq_ids: Iterable[int], reason: str) -> list[SequenceUpdate]:
        """No step in flight will be settled, or sequences must end for a fault outside any step: end seq_ids with an error.

        What the worker knows of the others in flight, and what is in their last blocks, is uncertain: they are computed again
        from their tokens, as after a preemption. Unknown ids are ignored.
        """
        updates, self._ended = self._ended, []
        plans = self._in_flight.drop()
        for plan in plans:
            lost_slots, lost_blocks = [slot for _, slot in plan.swap_out], [block_id for block_id, _ in plan.swap_in]
            self._in_flight.land(plan, self._running, self._manager, lost_slots, lost_blocks)
            self._worker.put_back(plan.removed)
        updates += [self._end_with_update(self._sequences[i], reason) for i in dict.fromkeys(seq_ids) if i in self._sequences]
        for share in (share for plan in plans for share in plan.sequences):
            survivor = self._running.get(share.seq_id)
            if survivor is not None:
                self._requeue(survivor)
        return updates

    def reconfigure(
        self, config: ResolvedSchedulerConfig, manager: KVCacheManager, victims: Iterable[Sequence], swap_block_s: float | None
    ) -> None:
        """Between two steps: new budgets, a new measured_block_s if any, books in which the preempted victims have no part."""
        assert not self._in_flight, "the steps in flight must be settled first"
        for victim in victims:
            self._requeue(victim)
        self._manager = manager
        self._set_budgets(config)
        self._deadlines.set_queue_timeout(config.queue_timeout, self._sequences.values())
        self.preemption.measured_block_s = swap_block_s or self.preemption.measured_block_s

    def check_integrity(self) -> None:
        """Raise AssertionError, saying what is wrong, unless all books agree."""
        waiting, live, known = list(self._waiting), self._sequences.keys(), self._worker.known
        check_books(waiting, self._running, live, self._in_flight.orphans, known, self._manager, self._limits)

    def set_policy(self, policy: Policy) -> None:
        """Between two steps: another order from now on. Who runs goes on running; who waits gets the place it has there."""
        assert not self._in_flight, "the steps in flight must be settled first"
        waiting, self._order = list(self._waiting), Order(policy, self._order.max_wait_s)
        self._waiting = WaitingQueue(self._order)
        for sequence in waiting:
            self._enqueue(sequence)

    def _set_budgets(self, config: ResolvedSchedulerConfig) -> None:
        self._limits = StepLimits.of(config)
        self.preemption.mode = config.preemption_mode
        self._order.max_wait_s = config.max_wait
        self._admission = AdmissionRule(config.admission, self._manager, self.estimator)

    def _enqueue(self, sequence: Sequence) -> None:
        if self._order.policy.reads_estimate:
            match = self._manager.match(sequence, sequence.num_tokens - 1)
            sequence.expected_s = self.estimator.remaining_s(sequence, match.num_tokens)
        self._waiting.add(sequence)

    def _fill(self, step: StepBuilder, now: float) -> None:
        """Decodes in order of admission, then prefills, running or waiting, by policy; no admission once blocks ran out."""
        num_preemptions = self.num_preemptions
        decodes, prefills = list[Sequence](), list[Sequence]()
        for sequence in self._running.values():
            if not sequence.in_flight:
                (decodes if kind_of(sequence, sequence.num_computed) is ShareKind.DECODE else prefills).append(sequence)
        may_prefill = prefills or (self._waiting and len(self._running) < self._limits.max_seqs)
        self.speculation.begin_step(decodes, step.budget, is_open=not may_prefill)
        for sequence in decodes:
            self._continue(sequence, ShareKind.DECODE, step)
        target_s = self._limits.target_itl_s
        if target_s is not None and step.shares:
            step.budget.prefill_tokens = self.estimator.prefill_budget(target_s, step.shares.values(), prefills)
        for key, sequence in sorted((self._order.key(sequence, now), sequence) for sequence in prefills):
            if self.num_preemptions == num_preemptions:
                self._admit_waiting(step, now, key)
            self._continue(sequence, ShareKind.PREFILL, step)
        if self.num_preemptions == num_preemptions:
            self._admit_waiting(step, now, None)

    def _continue(self, sequence: Sequence, kind: ShareKind, step: StepBuilder) -> None:
        if sequence.state is not SequenceState.RUNNING or sequence.seq_id in step.shares:
            return  # it gave way to one before it in this very step, and may even have been admitted again
        first = sequence.num_computed
        num_new = step.budget.share(sequence, first, kind)
        if num_new > 0:
            drafts = self.speculation.drafts(sequence, num_new, step.budget) if kind is ShareKind.DECODE else NO_DRAFTS
            growth = self._manager.grow(sequence.seq_id, first, first + num_new + len(drafts))
            if growth is None:
                drafts = NO_DRAFTS  # nobody gives way to a guess
                growth = self._grow(sequence, num_new, step)
            if growth is not None:
                step.add(sequence, kind, num_new, growth, growth.new_block_ids, drafts)

    def _admit_waiting(self, step: StepBuilder, now: float, limit: SortKey | None) -> None:
        """Waiting sequences that stand before `limit`, in order, until one does not fit: nobody overtakes it.

        Passed over are only those that wait for their fork's parent, for the step's prompt_logprobs tokens, or because their
        request has its share of the seats and blocks.
        """
        order, budget = self._order, step.budget
        if not self._waiting or budget.prefill_tokens == 0:
            return
        if len(self._running) >= self._limits.max_seqs and not order.policy.preempts:
            return
        reserved = passed_over = None
        for sequence in self._waiting.candidates(now):
            if budget.prefill_tokens == 0 or (limit is not None and order.key(sequence, now) > limit):
                return
            match = match_of(sequence, self._sequences, self._manager) if sequence.request is not passed_over else None
            if match is None:
                continue
            if self._admission.exceeds_share(sequence, match, self._running.values(), self._limits.max_seqs):
                passed_over = sequence.request  # its choices stand side by side
                continue
            if reserved is None:
                reserved = self._admission.outstanding(self._running.values())
            while not self._fits(sequence, match, reserved):
                victim = order.gives_way(sequence, self._running.values(), now)
                if victim is None or victim.in_flight:
                    self.preemption.promise(sequence, match, self._manager, now)
                    return
                self._preempt(victim, step)
                reserved = self._admission.outstanding(self._running.values())
                match = match_of(sequence, self._sequences, self._manager) or match
            # A prompt that is cached to its end still needs its last token computed: the logits come from there.
            first = min(match.num_tokens, sequence.num_tokens - 1)
            num_new = budget.share(sequence, first, kind_of(sequence, first))
            if num_new == 0:
                continue
            self._waiting.remove(sequence)
            self._admit(sequence, match, first, num_new, step, now)
            if sequence.state is SequenceState.RUNNING:
                reserved += self._admission.outstanding((sequence,))

    def _fits(self, sequence: Sequence, match: PrefixMatch, reserved: int) -> bool:
        """Whether there is a seat, and blocks beside the `reserved` ones that running sequences will take."""
        count = len(self._running)
        if not count and not self._in_flight.orphans:
            return True
        return count < self._limits.max_seqs and self._admission.has_blocks(sequence, match, reserved)

    def _admit(self, sequence: Sequence, match: PrefixMatch, first: int, num_new: int, step: StepBuilder, now: float) -> None:
        self._manager.allocate(sequence, match, first)
        if sequence.num_cached_prompt is None:
            sequence.num_cached_prompt = min(first, sequence.num_prompt)
            sequence.first_scheduled_s = now
            sequence.expected_s = self.estimator.remaining_s(sequence, first)
        sequence.state = SequenceState.RUNNING
        sequence.num_computed = first
        self._order.policy.lanes.admitted(sequence, now)
        self._running[sequence.seq_id] = sequence
        growth = self._grow(sequence, num_new, step)
        if growth is not None:
            block_ids = self._manager.block_ids(sequence.seq_id)
            step.add(sequence, kind_of(sequence, first), num_new, growth, block_ids, [])

    def _grow(self, sequence: Sequence, num_new: int, step: StepBuilder) -> Growth | None:
        """Blocks for the next num_new tokens, preempting for them if it must. None: the sequence itself had to go, or it sits
        this step out because blocks come free when a step in flight is settled."""
        first = sequence.num_computed
        while True:
            growth = self._manager.grow(sequence.seq_id, first, first + num_new)
            if growth is not None:
                return growth
            victim = self._order.victim(self._running.values(), self._scheduled_s)
            if victim.in_flight or self._in_flight.orphans:
                return None
            if len(self._running) == 1:
                # Cannot be: max_model_len fits the pool. Should it be all the same, this one ends and the others go on.
                self._ended.append(self._end_with_update(sequence, "the KV cache is too small for this sequence"))
                return None
            victim.num_displaced += 1
            self._preempt(victim, step)
            if victim is sequence:
                return None

    def _preempt(self, victim: Sequence, step: StepBuilder) -> None:
        step.withdraw(victim)
        self.preemption.preempt(victim, self._manager, self._scheduled_s)
        self._requeue(victim)

    def _commit(self, sequence: Sequence, update: SequenceUpdate | None) -> None:
        """Tell the others of one sequence's progress and news; it may have reached its end."""
        self._manager.commit(sequence)
        self._order.policy.lanes.served(sequence, len(update.new_token_ids) if update is not None else 0)
        if update is not None and update.finish_reason is not None:
            if sequence.request.pooling is None:
                self.estimator.observe_end(sequence)
            self._end(sequence, update.finish_reason)

    def _requeue(self, sequence: Sequence) -> None:
        """Let it wait where its policy puts it; its tokens stay as they are. Blocks it still has are freed."""
        del self._running[sequence.seq_id]
        self._manager.free_table(sequence.seq_id)
        self._worker.forget(sequence.seq_id)
        sequence.state = SequenceState.PREEMPTED
        sequence.num_computed = 0
        sequence.is_decoding = False
        sequence.num_preemptions += 1
        self.num_preemptions += 1
        self._enqueue(sequence)

    def _end_with_update(
        self, sequence: Sequence, error: str | None, reason: FinishReason = FinishReason.ERROR
    ) -> SequenceUpdate:
        self._end(sequence, reason)
        return end_of(sequence, reason, error)

    def _end(self, sequence: Sequence, reason: FinishReason) -> None:
        """Out of the queues, the worker and the cache. The blocks of one in flight may still be written to: they go later."""
        seq_id = sequence.seq_id
        del self._sequences[seq_id]
        if self._running.pop(seq_id, None) is None:
            self._waiting.remove(sequence)
        self._worker.forget(seq_id)
        self.speculation.forget(seq_id)
        sequence.state = SequenceState.FINISHED
        sequence.finish_reason = reason
        if sequence.in_flight:
            self._in_flight.orphans.add(seq_id)
        else:
            self._manager.free(seq_id)
