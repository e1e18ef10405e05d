"""Scheduler: decides what every step computes, and what each settled step means for its sequences.

There is no prefill phase and no decode phase: a sequence whose num_computed is behind its num_tokens catches up, by as many
tokens as the step's budgets leave for it. A step goes through

    schedule(now) -> StepPlan -> (the worker runs it) -> settle(plan, result, now), or fail(seq_ids, reason) if it raised

strictly in turn; `add` and `abort` may come at any moment between two of these calls.
"""

from __future__ import annotations

from collections.abc import Iterable

from octavo.config.scheduler import SchedulerConfig
from octavo.errors import ConfigError, ContextLengthError, InvalidRequestError
from octavo.kvcache.block_table import blocks_for
from octavo.kvcache.manager import Growth, KVCacheManager, PrefixMatch
from octavo.kvcache.prefix_cache import MAX_TOKEN_ID
from octavo.scheduler.budget import StepBudget, check_capacity
from octavo.scheduler.draft import StepDraft, new_sequence
from octavo.scheduler.matching import match_of
from octavo.scheduler.policies.interface import Policy
from octavo.scheduler.preemption import NO_MOVES, Preemption
from octavo.scheduler.queues import WaitingQueue
from octavo.scheduler.stats import SchedulerStats
from octavo.scheduler.update import SequenceUpdate, append_token, report_prompt_logprobs, update_of
from octavo.sequence import FinishReason, Sequence, SequenceState
from octavo.step import PromptLogprobs, SampledToken, ScheduledSequence, StepPlan, StepResult


class Scheduler:
    """Continuous batching under max_num_seqs, max_num_batched_tokens and chunked_prefill_size.

    Order of a step: running decodes, then running prefills, then waiting sequences. No more sequences run than a step has
    tokens, so that every running decode advances in every step and the first prefill does too.

    Blocks: a running sequence that finds no free block has the policy's victim preempted (see preemption.py). To keep that
    rare, a waiting sequence is admitted only if its blocks, up to the first token it generates, fit beside those that all
    running sequences still need for the tokens they have and one more each. With nothing running it is always admitted:
    max_model_len fits the pool, which the constructor checks.
    """

    def __init__(
        self, config: SchedulerConfig, manager: KVCacheManager, policy: Policy, preemption: Preemption | None = None
    ) -> None:
        """Raises ConfigError when max_model_len is not resolved or the pool cannot hold one sequence of that length."""
        if config.max_model_len is None:
            raise ConfigError("max_model_len must be resolved before a scheduler is made", param="max_model_len")
        check_capacity(config.max_model_len, manager.num_blocks, manager.block_size, param="max_model_len")
        self.max_model_len = config.max_model_len
        self._manager = manager
        self._policy = policy
        self._preemption = preemption or Preemption()
        self._set_budgets(config)
        self._sequences: dict[int, Sequence] = {}
        """All that have not ended; each is either running or waiting."""
        self._running: dict[int, Sequence] = {}
        self._waiting = WaitingQueue(policy)
        self._plan: StepPlan | None = None
        """The step in flight."""
        self._orphans: list[int] = []
        """Ended while their step was in flight: their blocks are freed when it is over."""
        self._ended: list[SequenceUpdate] = []
        """Ends decided while scheduling; reported by the next settle."""
        self._on_worker: set[int] = set()
        self._removed: list[int] = []
        """To be forgotten by the worker with the next plan."""
        self._num_steps = self._num_scheduled_tokens = self._num_preemptions = 0
        self._scheduled_s = 0.0
        self._step_s = 0.0

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
        return self._policy.victim(candidates)

    def has_work(self) -> bool:
        """Whether schedule() has something to plan, or a step is in flight."""
        return bool(self._sequences or self._ended or self._plan)

    def stats(self) -> SchedulerStats:
        return SchedulerStats(
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            num_steps=self._num_steps,
            num_scheduled_tokens=self._num_scheduled_tokens,
            num_preemptions=self._num_preemptions,
            step_s=self._step_s,
            cache=self._manager.stats(),
            preemption=self._preemption,
        )

    def add(self, sequence: Sequence) -> None:
        """Put a new sequence into the waiting queue. Raises an InvalidRequestError for one that could never run."""
        is_new = sequence.seq_id not in self._sequences and sequence.state is SequenceState.WAITING
        assert is_new, f"sequence {sequence.seq_id} was added before"
        prompt = sequence.prompt_token_ids
        if not prompt:
            raise InvalidRequestError("the prompt has no tokens", param="prompt")
        if len(prompt) >= self.max_model_len:
            raise ContextLengthError(
                f"the prompt has {len(prompt)} tokens, which leaves no room for an answer: prompt and output together may have"
                f" {self.max_model_len}",
                param="prompt",
            )
        if min(prompt) < 0 or max(prompt) > MAX_TOKEN_ID:
            raise InvalidRequestError("the prompt holds a number that is no token", param="prompt", code="token_out_of_range")
        self._sequences[sequence.seq_id] = sequence
        self._waiting.add(sequence)

    def abort(self, seq_id: int, reason: FinishReason = FinishReason.ABORT) -> bool:
        """End a sequence in whatever state it is: no update follows. False if it has ended already or was never known.

        reason is STOP when the caller ends it for a stop string. A result that is still on its way is dropped; the blocks the
        step in flight may be writing to are freed when it is settled.
        """
        sequence = self._sequences.get(seq_id)
        if sequence is None:
            return False
        in_flight = self._plan is not None and sequence.state is SequenceState.RUNNING
        self._leave(sequence, reason)
        if in_flight:
            self._orphans.append(seq_id)
        else:
            self._manager.free(seq_id)
        return True

    def schedule(self, now: float) -> StepPlan | None:
        """Plan the next step; None when there is nothing to do. The plan must be settled or failed before the next one.

        A plan without sequences is made when all it has to bring about is the report of a sequence that ended while planning.
        """
        assert self._plan is None, "the step in flight must be settled first"
        draft = StepDraft(StepBudget(self._max_tokens, self._chunk_size))
        self._scheduled_s = now
        num_preemptions = self._num_preemptions
        self._continue_running(draft)
        if self._num_preemptions == num_preemptions:
            self._admit_waiting(draft, now)
        if not draft.shares and not self._ended and not self._manager.moves()[0]:
            return None
        self._num_steps += 1
        self._num_scheduled_tokens += self._max_tokens - draft.budget.tokens
        self._plan = draft.finish(self._num_steps, self._removed, self._manager.moves())
        self._removed = []
        return self._plan

    def settle(self, plan: StepPlan, result: StepResult, now: float) -> list[SequenceUpdate]:
        """Take in what the step in flight produced: progress, tokens, ends. Sequences without news have no update."""
        assert plan is self._plan and result.step_id == plan.step_id, f"step {result.step_id} is not the step in flight"
        report = result.swap or NO_MOVES
        self._close_step(report.lost_slots, report.lost_blocks)
        self._step_s = now - self._scheduled_s
        self._preemption.observe(plan, report, self._step_s, now)
        updates, self._ended = self._ended, []
        sampled = {token.seq_id: token for token in result.sampled}
        prompt_logprobs = {entry.seq_id: entry for entry in result.prompt_logprobs}
        for share in plan.sequences:
            seq_id = share.seq_id
            sequence = self._running.get(seq_id)
            if sequence is None:
                continue
            error = result.failed.get(seq_id)
            if error is not None:
                updates.append(self._end_with_error(sequence, error))
                continue
            if seq_id in report.not_run:
                self._requeue(sequence)
                continue
            try:
                update = self._settle_share(sequence, share, sampled.get(seq_id), prompt_logprobs.get(seq_id))
            except Exception as fault:  # whatever is wrong with this result, the others' are good
                update = self._end_with_error(sequence, f"{type(fault).__name__}: {fault}")
            if update is not None:
                updates.append(update)
        return updates

    def fail(self, seq_ids: Iterable[int], reason: str) -> list[SequenceUpdate]:
        """The step in flight raised as a whole, or sequences must end for a fault outside any step: end seq_ids with an error.

        What the worker knows of the failed step's other sequences, and what is in their last blocks, is uncertain: they are
        computed again from their tokens, as after a preemption. Unknown ids are ignored.
        """
        updates, self._ended = self._ended, []
        plan = self._plan
        if plan is not None:
            self._close_step([slot for _, slot in plan.swap_out], [block_id for block_id, _ in plan.swap_in])
            self._removed = plan.removed + self._removed
        updates += [self._end_with_error(self._sequences[i], reason) for i in dict.fromkeys(seq_ids) if i in self._sequences]
        for share in plan.sequences if plan is not None else ():
            survivor = self._running.get(share.seq_id)
            if survivor is not None:
                self._requeue(survivor)
        return updates

    def reconfigure(self, config: SchedulerConfig, manager: KVCacheManager, victims: Iterable[Sequence]) -> None:
        """Between two steps: new budgets, and new books in which the victims, who are preempted, have no part."""
        assert self._plan is None, "the step in flight must be settled first"
        for victim in victims:
            self._requeue(victim)
        self._manager = manager
        self._set_budgets(config)

    def check_integrity(self) -> None:
        """Raise AssertionError, saying what is wrong, unless all books agree."""
        waiting = {sequence.seq_id for sequence in self._waiting}
        assert len(waiting) == len(self._waiting), "a sequence waits twice"
        assert not waiting & self._running.keys(), f"running and waiting: {waiting & self._running.keys()}"
        assert waiting | self._running.keys() == self._sequences.keys(), "a live sequence is neither running nor waiting"
        assert self._running.keys() <= self._on_worker, "a running sequence is unknown to the worker"
        assert len(self._running) <= self._max_seqs, f"{len(self._running)} sequences run, {self._max_seqs} may"
        self._manager.check_integrity()
        with_blocks = self._manager.seq_ids()
        expected = self._running.keys() | set(self._orphans)
        assert with_blocks == expected, f"sequences with blocks and running ones differ: {with_blocks ^ expected}"
        for seq_id, sequence in self._running.items():
            needed = blocks_for(sequence.num_computed, self._manager.block_size)
            assert self._manager.num_granted(seq_id) >= needed, f"sequence {seq_id} computed more than its blocks hold"
            assert sequence.num_computed < sequence.num_tokens, f"sequence {seq_id} runs with nothing to compute"

    def _set_budgets(self, config: SchedulerConfig) -> None:
        self._max_seqs = min(config.max_num_seqs, config.max_num_batched_tokens)
        self._max_tokens = config.max_num_batched_tokens
        self._chunk_size = config.chunked_prefill_size
        self._preemption.mode = config.preemption_mode

    def _continue_running(self, draft: StepDraft) -> None:
        """Running sequences: those one token behind (decodes) in order of admission, then the others in policy order."""
        prefills = []
        for sequence in list(self._running.values()):
            if sequence.num_tokens - sequence.num_computed > 1:
                prefills.append(sequence)
            else:
                self._continue(sequence, draft)
        if prefills:
            prefills.sort(key=lambda sequence: (self._policy.key(sequence), sequence.seq_id))
        for sequence in prefills:
            self._continue(sequence, draft)

    def _continue(self, sequence: Sequence, draft: StepDraft) -> None:
        if sequence.state is not SequenceState.RUNNING:
            return  # it gave way to one before it in this very step
        num_new = draft.budget.share(sequence, sequence.num_computed)
        if num_new > 0:
            growth = self._grow(sequence, num_new, draft)
            if growth is not None:
                draft.add(sequence, num_new, growth, None, growth.new_block_ids)

    def _admit_waiting(self, draft: StepDraft, now: float) -> None:
        """Waiting sequences in policy order, until one does not fit: nobody overtakes it.

        Passed over are only those that wait for their fork's parent, or for the step's prompt_logprobs tokens.
        """
        manager, waiting, budget = self._manager, self._waiting, draft.budget
        if not waiting or len(self._running) >= self._max_seqs or budget.tokens == 0:
            return
        reserved = sum(self._outstanding(sequence) for sequence in self._running.values())
        index = 0
        while index < len(waiting) and len(self._running) < self._max_seqs and budget.tokens > 0:
            sequence = waiting[index]
            match = self._match(sequence)
            if match is None:
                index += 1
                continue
            # A prompt that is cached to its end still needs its last token computed: the logits come from there.
            first = min(match.num_tokens, sequence.num_tokens - 1)
            num_new = budget.share(sequence, first)
            if num_new == 0:
                index += 1
                continue
            if self._running and manager.cost(match, first, sequence.num_tokens + 1) + reserved > manager.num_free:
                manager.promise(sequence, match, self._preemption.prefers_swap(manager.block_size, now))
                return
            waiting.pop(index)
            self._admit(sequence, match, first, num_new, draft, now)
            if sequence.state is SequenceState.RUNNING:
                reserved += self._outstanding(sequence)

    def _match(self, sequence: Sequence) -> PrefixMatch | None:
        parent = self._sequences.get(sequence.fork_of) if sequence.fork_of is not None else None
        return match_of(sequence, parent, self._manager)

    def _admit(self, sequence: Sequence, match: PrefixMatch, first: int, num_new: int, draft: StepDraft, now: float) -> None:
        self._manager.allocate(sequence, match, first)
        if sequence.num_cached_prompt is None:
            sequence.num_cached_prompt = min(first, sequence.num_prompt)
            sequence.first_scheduled_s = now
        sequence.state = SequenceState.RUNNING
        sequence.num_computed = first
        self._running[sequence.seq_id] = sequence
        growth = self._grow(sequence, num_new, draft)
        if growth is None:
            return
        self._on_worker.add(sequence.seq_id)
        draft.add(sequence, num_new, growth, new_sequence(sequence), self._manager.block_ids(sequence.seq_id))

    def _outstanding(self, sequence: Sequence) -> int:
        """Blocks a running sequence still needs for the tokens it has and the next one."""
        needed = blocks_for(sequence.num_tokens + 1, self._manager.block_size)
        return max(0, needed - self._manager.num_granted(sequence.seq_id))

    def _grow(self, sequence: Sequence, num_new: int, draft: StepDraft) -> Growth | None:
        """Blocks for the next num_new tokens, preempting for them if it must. None: the sequence itself had to go."""
        first = sequence.num_computed
        while True:
            growth = self._manager.grow(sequence.seq_id, first, first + num_new)
            if growth is not None:
                return growth
            if len(self._running) == 1:
                # Cannot be: max_model_len fits the pool. Should it be all the same, this one ends and the others go on.
                self._ended.append(self._end_with_error(sequence, "the KV cache is too small for this sequence"))
                return None
            victim = self._policy.victim(self._running.values())
            draft.withdraw(victim)
            self._preemption.preempt(victim, self._manager, self._scheduled_s)
            self._requeue(victim)
            if victim is sequence:
                return None

    def _settle_share(
        self, sequence: Sequence, share: ScheduledSequence, token: SampledToken | None, prompt_logprobs: PromptLogprobs | None
    ) -> SequenceUpdate | None:
        """Progress and news of one sequence. Raises AssertionError, the sequence still live, for a result that cannot be."""
        sequence.num_computed = share.num_computed + share.num_new
        self._manager.commit(sequence)
        reported = report_prompt_logprobs(sequence, prompt_logprobs)
        if not share.needs_sample:
            if reported is None:
                return None
            update = update_of(sequence)
            update.prompt_logprobs = reported
            return update
        assert token is not None, "the worker returned no token for it"
        assert 0 <= token.token_id <= MAX_TOKEN_ID, f"the worker returned token id {token.token_id}"
        reason = append_token(sequence, token.token_id, self.max_model_len)
        update = update_of(sequence)
        update.prompt_logprobs = reported
        update.new_token_ids.append(token.token_id)
        if token.logprobs is not None:
            update.logprobs.append(token.logprobs)
        if reason is not None:
            self._end(sequence, reason)
            update.finish_reason = reason
            update.stop_token_id = sequence.stop_token_id
        return update

    def _close_step(self, lost_slots: Iterable[int], lost_blocks: Iterable[int]) -> None:
        self._plan = None
        self._manager.end_step(lost_slots, lost_blocks)
        for seq_id in self._orphans:
            self._manager.free(seq_id)
        self._orphans = []

    def _requeue(self, sequence: Sequence) -> None:
        """Let it wait at the place its policy key gives it; its tokens stay as they are. Blocks it still has are freed."""
        del self._running[sequence.seq_id]
        self._manager.free_table(sequence.seq_id)
        self._forget_on_worker(sequence.seq_id)
        sequence.state = SequenceState.PREEMPTED
        sequence.num_computed = 0
        sequence.num_preemptions += 1
        self._num_preemptions += 1
        self._waiting.add(sequence)

    def _end_with_error(self, sequence: Sequence, error: str) -> SequenceUpdate:
        self._end(sequence, FinishReason.ERROR)
        update = update_of(sequence)
        update.finish_reason = FinishReason.ERROR
        update.error = error
        return update

    def _end(self, sequence: Sequence, reason: FinishReason) -> None:
        self._leave(sequence, reason)
        self._manager.free(sequence.seq_id)

    def _leave(self, sequence: Sequence, reason: FinishReason) -> None:
        """Out of the queues and the worker; the blocks are the caller's business."""
        del self._sequences[sequence.seq_id]
        if self._running.pop(sequence.seq_id, None) is None:
            self._waiting.remove(sequence)
        self._forget_on_worker(sequence.seq_id)
        sequence.state = SequenceState.FINISHED
        sequence.finish_reason = reason

    def _forget_on_worker(self, seq_id: int) -> None:
        if seq_id in self._on_worker:
            self._on_worker.discard(seq_id)
            self._removed.append(seq_id)
