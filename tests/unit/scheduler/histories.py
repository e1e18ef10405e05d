"""Random histories of a tiny engine: whatever happens, the books agree and every sequence gets the tokens it would get alone.

The checking worker checks on its side that no step writes into a block that another sequence can see, and that every key read
is the key of the right tokens. Here is checked that every sequence ends exactly once, that budgets hold and that all blocks
come home.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.scheduler.checking_worker import DRAFTERS, EOS, GuessingDrafter, Rig, make_sequence, next_token

from octavo.config.cache import blocks_for
from octavo.sampling_params import SamplingParams
from octavo.scheduler.estimator import Estimator
from octavo.scheduler.policies.registry import make_policy
from octavo.scheduler.update import SequenceUpdate
from octavo.sequence import FinishReason, Sequence, SequenceState
from octavo.step import StepPlan

BLOCK_SIZE = 4
POLICIES = ("fcfs", "sjf", "priority", "fair")
WEIGHTS = {"a": 2.0}


def tokens_alone(sequence: Sequence, max_model_len: int) -> list[int]:
    """The output the sequence has in an engine of its own: no scheduler, no cache."""
    output: list[int] = []
    while len(output) < sequence.request.max_tokens and sequence.num_prompt + len(output) < max_model_len:
        history = sequence.request.prompt_token_ids + output
        output.append(next_token(sequence.request.cache_salt, sequence.request.seed, sequence.choice, history))
        if output[-1] in sequence.stop_token_ids:
            break
    return output


class Histories(RuleBasedStateMachine):
    """Adds, aborts, steps, failures in any order, over pools so small that preemption is common."""

    seen: Counter[str]
    """How often each mechanism ran, over all examples of one test run."""
    depth: int
    """Most steps in flight."""

    @initialize(
        num_blocks=st.integers(4, 12),
        max_num_seqs=st.integers(1, 5),
        max_num_batched_tokens=st.integers(1, 24),
        chunk=st.integers(1, 12),
        caching=st.booleans(),
        policy=st.sampled_from(POLICIES),
        admission=st.sampled_from(["optimistic", "eager", "guaranteed"]),
        max_wait=st.sampled_from([0.0, 5.0, 1000.0]),
        target_itl=st.sampled_from([None, None, 3000.0]),
        queue_timeout=st.sampled_from([None, None, 3.0]),
        num_swap_blocks=st.sampled_from([0, 1, 3, 8]),
        mode=st.sampled_from(["auto", "swap", "recompute"]),
        drafter=st.sampled_from([None, *DRAFTERS]),
        num_forced=st.sampled_from([0, 0, 2]),
    )
    def build(
        self,
        num_blocks: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        chunk: int,
        caching: bool,
        policy: str,
        admission: str,
        max_wait: float,
        target_itl: float | None,
        queue_timeout: float | None,
        num_swap_blocks: int,
        mode: str,
        drafter: str | None,
        num_forced: int,
    ) -> None:
        estimator = Estimator()
        self._begin(
            num_blocks,
            caching=caching,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            chunked_prefill_size=chunk,
            name=policy,
            estimator=estimator,
            admission=admission,
            max_wait=max_wait,
            target_itl=target_itl,
            queue_timeout=queue_timeout,
            num_swap_blocks=num_swap_blocks,
            preemption_mode=mode,
            drafter=None if drafter is None else GuessingDrafter(drafter),
        )
        self.rig.worker.num_forced = num_forced

    def _begin(self, num_blocks: int, name: str = "fcfs", **options: Any) -> None:
        self.now, self.policy = 0.0, name
        self.admissions = {options.get("admission", "optimistic")}
        """All that were ever in force: what was admitted under another one is still there."""
        self.max_model_len = min(24, num_blocks * BLOCK_SIZE)
        policy = make_policy(name, options.get("estimator"), WEIGHTS)
        self.rig = Rig(num_blocks, BLOCK_SIZE, max_model_len=self.max_model_len, policy=policy, **options)
        self.sequences: dict[int, Sequence] = {}
        self.ends: Counter[int] = Counter()
        self.faulty: set[int] = set()
        self.reported: dict[int, list[int]] = {}
        self.prompt_positions: dict[int, list[int]] = {}
        self.plans: deque[StepPlan] = deque()
        """In flight, oldest first."""

    @rule(
        length=st.integers(1, 15),
        stem=st.sampled_from([0, 0, 1]),
        n=st.sampled_from([1, 1, 1, 2, 3]),
        max_tokens=st.integers(1, 14),
        salt=st.sampled_from(["", "", "s"]),
        prompt_logprobs=st.sampled_from([None, None, None, 0]),
        stops=st.booleans(),
        priority=st.integers(-1, 1),
        tenant=st.sampled_from("abc"),
        lifetime=st.sampled_from([None, None, None, 3.0, 9.0]),
    )
    def add(
        self,
        length: int,
        stem: int,
        n: int,
        max_tokens: int,
        salt: str,
        prompt_logprobs: int | None,
        stops: bool,
        priority: int,
        tenant: str,
        lifetime: float | None,
    ) -> None:
        parent = len(self.sequences)
        for choice in range(n):
            sequence = make_sequence(
                parent + choice,
                [stem] * length,
                min(max_tokens, self.max_model_len - length),
                sampling=SamplingParams(prompt_logprobs=prompt_logprobs),
                stop_token_ids=[EOS] if stops else [],
                choice=choice,
                fork_of=parent if choice else None,
                cache_salt=salt,
                arrival_s=self.now,
                priority=priority,
                tenant=tenant,
                deadline_s=None if lifetime is None else self.now + lifetime,
            )
            self.sequences[sequence.seq_id] = sequence
            self.rig.add(sequence)

    @precondition(lambda self: not self.plans)
    @rule(
        block_size=st.sampled_from([2, 3, 4, 8]),
        spare=st.integers(0, 6),
        max_num_seqs=st.integers(1, 5),
        max_num_batched_tokens=st.integers(1, 24),
        chunk=st.integers(1, 12),
    )
    def reconfigure(self, block_size: int, spare: int, max_num_seqs: int, max_num_batched_tokens: int, chunk: int) -> None:
        num_running = self.rig.scheduler.num_running
        config = replace(
            self.rig.config,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            chunked_prefill_size=chunk,
        )
        manager, num_blocks = self.rig.manager, blocks_for(self.max_model_len, block_size) + spare
        num_slots = manager.swap.num_slots * manager.block_size // block_size
        plan = self.rig.reconfigure(config, num_blocks, block_size, num_slots)
        self.admissions.add("another pool")
        self.seen["relayouts with company"] += num_running > 1
        self.seen["relayouts that preempt"] += bool(plan.victims)

    @precondition(lambda self: len(self.plans) < self.depth)
    @rule()
    def schedule(self) -> None:
        before = self.rig.scheduler.num_preemptions
        self.now += 1.0
        plan = self.rig.scheduler.schedule(self.now)
        assert self.plans or (plan is not None) == self.rig.scheduler.has_work(), "with work there is always a step"
        self.seen["timeouts in flight"] += sum(
            sequence.finish_reason is FinishReason.TIMEOUT and sequence.in_flight and self.ends[sequence.seq_id] == 0
            for sequence in self.sequences.values()
        )
        if plan is None:
            self.seen["nothing to plan"] += bool(self.plans)
            return
        self.rig.check_plan(plan)
        shares = [share.seq_id for other in (*self.plans, plan) for share in other.sequences]
        assert len(set(shares)) == len(shares), "a sequence is in two steps"
        self.plans.append(plan)
        self.seen["several in flight"] += len(self.plans) > 1 and bool(self.plans[-2].sequences and plan.sequences)
        preempted = self.rig.scheduler.num_preemptions - before
        assert not preempted or self.admissions != {"guaranteed"} or self.policy == "priority"
        self.seen["preemptions"] += preempted
        self.seen["copies"] += len(plan.block_copies)
        self.seen["moves out"] += len(plan.swap_out)
        self.seen["moves in"] += len(plan.swap_in)
        self.seen["kept blocks taken back"] += sum(
            share.num_computed > 0 and share.new is not None and not plan.swap_in and not self.rig.manager.enable_prefix_caching
            for share in plan.sequences
        )
        self.seen["chunks"] += sum(not share.needs_sample for share in plan.sequences)

    @precondition(lambda self: len(self.rig.results) < len(self.plans))
    @rule(num_steps=st.integers(1, 3))
    def run_ahead(self, num_steps: int) -> None:
        """The device is done with more steps, but nobody has looked yet."""
        for plan in list(self.plans)[len(self.rig.results) :][:num_steps]:
            self.rig.run(plan)
        self.seen["run ahead"] += len(self.rig.results) > 1

    @precondition(lambda self: self.plans)
    @rule()
    def settle(self) -> None:
        self._take(self.rig.settle(self.plans.popleft()))
        worker = self.rig.worker
        if not worker.bad_slots and not worker.unreadable and worker.num_moves_in:
            self.seen["swapped without loss"] += 1

    @precondition(lambda self: not self.plans)
    @rule(policy=st.sampled_from(POLICIES))
    def swap_policy(self, policy: str) -> None:
        scheduler = self.rig.scheduler
        scheduler.set_policy(make_policy(policy, scheduler.estimator, WEIGHTS))
        self.policy = policy
        self.seen["policy swaps with a queue"] += scheduler.num_waiting > 1

    @rule()
    def run_one_step(self) -> None:
        """As the core does: as many steps in flight as there may be, then the oldest is settled."""
        self.schedule_all()
        if self.plans:
            self.settle()

    @precondition(lambda self: len(self.plans) < self.depth)
    @rule()
    def schedule_all(self) -> None:
        """As many steps in flight as there may be."""
        num_before = -1
        while num_before < len(self.plans) < self.depth:
            num_before = len(self.plans)
            self.schedule()

    @precondition(lambda self: self.plans and self.plans[0].sequences)
    @rule(data=st.data(), ran=st.booleans(), name_one=st.booleans())
    def fail(self, data: st.DataObject, ran: bool, name_one: bool) -> None:
        """The oldest step raises as a whole, before or after the worker changed anything; the device may have done others."""
        if ran and not self.rig.results:
            self.rig.run(self.plans[0])
        self.rig.results.clear()
        victims = [data.draw(st.sampled_from(self.plans[0].sequences)).seq_id] if name_one else []
        self.faulty.update(victims)
        self._take(self.rig.scheduler.fail(victims, "boom"))
        self.seen["failures of several"] += len(self.plans) > 1
        self.plans.clear()
        self.seen["failures"] += 1

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self._abort(data.draw(st.sampled_from(sorted(self.sequences))))

    @precondition(lambda self: any(plan.sequences for plan in list(self.plans)[1:]))
    @rule(data=st.data())
    def abort_behind_others(self, data: st.DataObject) -> None:
        behind = [share.seq_id for plan in list(self.plans)[1:] for share in plan.sequences]
        self._abort(data.draw(st.sampled_from(behind)))

    def _abort(self, seq_id: int) -> None:
        live = self.sequences[seq_id].state is not SequenceState.FINISHED
        behind = any(share.seq_id == seq_id for plan in list(self.plans)[1:] for share in plan.sequences)
        in_flight = self.sequences[seq_id].in_flight
        assert self.rig.scheduler.abort(seq_id) == live
        if live:
            self.ends[seq_id] += 1
            self.seen["aborts in flight"] += in_flight
            self.seen["aborts behind others"] += behind

    @invariant()
    def books_agree(self) -> None:
        if hasattr(self, "rig"):
            self.rig.scheduler.check_integrity()

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        steps = 0
        while self.plans or self.rig.scheduler.has_work():
            self.run_one_step()
            steps += 1
            assert steps < 3000, "the engine makes no progress"
        assert self.rig.manager.num_free == self.rig.manager.num_blocks, "blocks have leaked"
        assert self.rig.manager.stats().num_swapped == 0, "slots have leaked"
        self.seen["drafts accepted"] += self.rig.worker.num_accepted
        self.seen["drafts rejected"] += self.rig.worker.num_rejected
        self.seen["forced tokens"] += self.rig.worker.num_forced * len(self.reported)
        self.seen["lost moves"] += self.rig.worker.num_lost_slots + self.rig.worker.num_lost_blocks
        for seq_id, sequence in self.sequences.items():
            assert self.ends[seq_id] == 1, f"sequence {seq_id} ended {self.ends[seq_id]} times"
            expected = tokens_alone(sequence, self.max_model_len)
            assert self.reported.get(seq_id, []) == sequence.output_token_ids
            if sequence.finish_reason in (FinishReason.STOP, FinishReason.LENGTH):
                assert sequence.output_token_ids == expected
                stopped = bool(expected) and expected[-1] in sequence.stop_token_ids
                assert sequence.finish_reason is (FinishReason.STOP if stopped else FinishReason.LENGTH)
                if sequence.request.sampling.prompt_logprobs is not None:
                    assert self.prompt_positions.get(seq_id, []) == list(range(1, sequence.num_prompt))
            else:
                assert sequence.output_token_ids == expected[: len(sequence.output_token_ids)]
            self.seen["cache hits"] += bool(sequence.num_cached_prompt) and sequence.fork_of is None
            self.seen["forks"] += sequence.fork_of is not None and sequence.num_cached_prompt == sequence.num_prompt - 1 > 0
            self.seen["timeouts"] += sequence.finish_reason is FinishReason.TIMEOUT
            was_shed = sequence.finish_reason is FinishReason.SHED
            self.seen["queue timeouts"] += was_shed
            assert not was_shed or sequence.first_scheduled_s is None, "only who never ran is sent away"
            most = self.rig.manager.num_blocks.bit_length() + 1
            assert sequence.num_displaced <= most or "eager" in self.admissions, "thrashing is bounded"
            completed = sequence.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
            self.seen["finished after preemption"] += completed and sequence.num_preemptions > 0

    def _take(self, updates: list[SequenceUpdate]) -> None:
        for update in updates:
            assert self.ends[update.seq_id] == 0, f"sequence {update.seq_id} has news after its end"
            assert update.finish_reason is not FinishReason.ERROR or update.seq_id in self.faulty, update.error
            self.ends[update.seq_id] += update.finish_reason is not None
            self.reported.setdefault(update.seq_id, []).extend(update.new_token_ids)
            if update.prompt_logprobs is not None:
                first = update.prompt_logprobs.first_position
                entries = update.prompt_logprobs.entries
                prompt = self.sequences[update.seq_id].request.prompt_token_ids
                assert [entry.token_id for entry in entries] == prompt[first : first + len(entries)]
                self.prompt_positions.setdefault(update.seq_id, []).extend(range(first, first + len(entries)))
