"""CheckingWorker: obeys step plans with a KV cache of plain integers, and checks at every read that it holds what it should."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field, replace
from typing import Any

from tests import fakes
from tests.configs import resolved_config

from octavo.config.resolved import ResolvedSchedulerConfig
from octavo.kvcache.manager import KVCacheManager
from octavo.scheduler.drafter import Drafter
from octavo.scheduler.estimator import Estimator
from octavo.scheduler.policies.interface import Policy
from octavo.scheduler.policies.registry import make_policy
from octavo.scheduler.preemption import Preemption
from octavo.scheduler.reconfigure import RelayoutPlan, plan_relayout
from octavo.scheduler.scheduler import Scheduler
from octavo.scheduler.update import SequenceUpdate
from octavo.sequence import Sequence
from octavo.step import (
    NewSequence,
    PromptLogprobs,
    Relayout,
    RelayoutResult,
    SampledTokens,
    ScheduledSequence,
    StepPlan,
    StepResult,
    SwapReport,
    TokenLogprobs,
)

VOCAB_SIZE = 11
EOS = 0


def digest_of(salt: str, token_ids: Tokens[int]) -> int:
    """What the fake cache stores for the last of token_ids: it depends on all of them, as keys and values do."""
    raw = hashlib.blake2b(repr((salt, tuple(token_ids))).encode(), digest_size=8).digest()
    return int.from_bytes(raw, "little")


def next_token(salt: str, seed: int, choice: int, token_ids: Tokens[int]) -> int:
    """The token that follows: a function of seed, choice and history alone."""
    return digest_of(f"{salt}/{seed}/{choice}", token_ids) % VOCAB_SIZE


@dataclass
class _Known:
    seq_id: int
    new: NewSequence
    token_ids: list[int]
    table: list[int] = field(default_factory=list)


class CheckingWorker:
    """`salts` maps seq_id to cache salt, so that foreign content in a shared block is noticed, too.

    Moves to slots in `bad_slots` fail when they are written, those from slots in `unreadable` when they are read.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.slots: list[int | None] = [None] * (num_blocks * block_size)
        self.known: dict[int, _Known] = {}
        self.salts: dict[int, str] = {}
        self.num_computed_tokens = 0
        self.num_accepted = self.num_rejected = 0
        self.num_forced = 0
        """Tokens that are forced behind each sampled one: those that would have been sampled."""
        self.num_copies = 0
        self.num_moves_out = 0
        self.num_moves_in = 0
        self.num_shifts = 0
        self.num_lost_slots = 0
        self.num_lost_blocks = 0
        self.swapped: dict[int, list[int | None]] = {}
        self.bad_slots: set[int] = set()
        self.unreadable: set[int] = set()

    def run(self, plan: StepPlan, failed: Tokens[int] = ()) -> StepResult:
        for seq_id in plan.removed:
            self.known.pop(seq_id, None)
        for share in plan.sequences:
            self._learn(share)
        report = self._move(plan)
        self._copy(plan)
        self._check_writes(plan)
        result = StepResult(plan.step_id, [], [], {seq_id: "made to fail" for seq_id in failed}, report)
        lost = set(report.lost_blocks) if report is not None else set()
        lost |= {target for source, target in plan.block_copies if source in lost}
        for share in plan.sequences:
            if report is not None and set(self.known[share.seq_id].table) & lost:
                del self.known[share.seq_id]
                report.not_run.append(share.seq_id)
                continue
            self._compute(share, result)
        return result

    def _move(self, plan: StepPlan) -> SwapReport | None:
        """Out and in, from a copy of what each list reads, as the moves of one list may run in any relayout."""
        if not plan.swap_out and not plan.swap_in:
            return None
        outs, ins = dict(plan.swap_out), dict(plan.swap_in)
        assert len(outs) == len(set(outs.values())) == len(plan.swap_out), plan.swap_out
        assert len(ins) == len(plan.swap_in), "two moves into one block"
        size, report = self.block_size, SwapReport(len(outs), float(len(outs)), len(ins), float(len(ins)))
        for block, slot in outs.items():
            if slot in self.bad_slots:
                report.lost_slots[slot] = "no space left"
                self.swapped.pop(slot, None)
            else:
                self.swapped[slot] = self.slots[block * size : (block + 1) * size]
        for block, slot in ins.items():
            if slot in self.unreadable or slot not in self.swapped:
                report.lost_blocks[block] = "input/output error"
                self.slots[block * size : (block + 1) * size] = [None] * size
            else:
                self.slots[block * size : (block + 1) * size] = self.swapped[slot]
        self.num_moves_out += len(outs)
        self.num_moves_in += len(ins)
        self.num_lost_slots += len(report.lost_slots)
        self.num_lost_blocks += len(report.lost_blocks)
        return report

    def reconfigure(self, relayout: Relayout) -> RelayoutResult:
        """Move the tokens as told; what was not moved is gone."""
        lost = self._resize_swap(relayout)
        for seq_id in self.known.keys() - relayout.tables.keys():
            del self.known[seq_id]
        for seq_id, table in relayout.tables.items():
            self.known[seq_id].table = list(table)
        if relayout.moves is None:
            return RelayoutResult(lost)
        old, old_size, self.block_size = self.slots, self.block_size, relayout.block_size
        self.slots = [None] * (relayout.num_blocks * relayout.block_size)
        for source, target, count in relayout.moves:
            for first, size in ((source, old_size), (target, self.block_size)):
                assert count > 0 and first // size == (first + count - 1) // size, "a run leaves its block"
            assert self.slots[target : target + count] == [None] * count, "two runs have one target"
            self.slots[target : target + count] = old[source : source + count]
        return RelayoutResult(lost)

    def _resize_swap(self, relayout: Relayout) -> dict[int, str]:
        """Move from slot to slot, then forget what is beyond the space, or of another block size."""
        sources, targets = {source for source, _ in relayout.swap_moves}, {target for _, target in relayout.swap_moves}
        assert len(sources) == len(targets) == len(relayout.swap_moves) and not sources & targets, relayout.swap_moves
        assert all(target < relayout.num_swap_blocks <= source for source, target in relayout.swap_moves), relayout
        lost = {target: "no space left" for _, target in relayout.swap_moves if target in self.bad_slots}
        for source, target in relayout.swap_moves:
            self.swapped[target] = self.swapped[source]
            if target in lost:
                del self.swapped[target]
        self.num_shifts += len(relayout.swap_moves)
        kept = range(relayout.num_swap_blocks) if relayout.moves is None else ()
        self.swapped = {slot: content for slot, content in self.swapped.items() if slot in kept}
        return lost

    def _learn(self, share: ScheduledSequence) -> None:
        if share.new is not None:
            assert share.seq_id not in self.known, "told twice"
            self.known[share.seq_id] = _Known(share.seq_id, share.new, list(share.new.token_ids))
        known = self.known[share.seq_id]
        known.token_ids += share.token_ids
        known.table += share.new_block_ids
        for index, block_id in share.replaced_blocks:
            known.table[index] = block_id

    def _copy(self, plan: StepPlan) -> None:
        sources = {source for source, _ in plan.block_copies}
        targets = [target for _, target in plan.block_copies]
        assert len(set(targets)) == len(targets) and not sources & set(targets), plan.block_copies
        self.num_copies += len(targets)
        size = self.block_size
        for source, target in plan.block_copies:
            self.slots[target * size : (target + 1) * size] = self.slots[source * size : (source + 1) * size]

    def _check_writes(self, plan: StepPlan) -> None:
        """No block that is written in this step is in the table of another sequence."""
        for share in plan.sequences:
            table = self.known[share.seq_id].table
            size = self.block_size
            written = set(table[share.num_computed // size : (share.num_computed + share.num_new - 1) // size + 1])
            for other_id, other in self.known.items():
                shared = written & set(other.table) if other_id != share.seq_id else None
                assert not shared, f"{share.seq_id} writes into {shared}, blocks of {other_id}"

    def _slot(self, known: _Known, position: int) -> int:
        return known.table[position // self.block_size] * self.block_size + position % self.block_size

    def _compute(self, share: ScheduledSequence, result: StepResult) -> None:
        known, salt = self.known[share.seq_id], self.salts.get(share.seq_id, "")
        last = share.num_computed + share.num_new
        token_ids, drafts = known.token_ids + share.draft_token_ids, share.draft_token_ids
        self.num_computed_tokens += share.num_new
        for position in range(share.num_computed, last):
            self.slots[self._slot(known, position)] = digest_of(salt, token_ids[: position + 1])
        for position in range(last):
            expected = digest_of(salt, token_ids[: position + 1])
            assert self.slots[self._slot(known, position)] == expected, f"{share.seq_id} reads a wrong key at {position}"
        if known.new.sampling.prompt_logprobs is not None:
            entries = [
                TokenLogprobs(known.token_ids[p + 1], -float(p + 1), 1, [], [])
                for p in range(share.num_computed, min(last, known.new.num_prompt - 1))
            ]
            if entries:
                result.prompt_logprobs.append(PromptLogprobs(share.seq_id, share.num_computed + 1, entries))
        assert share.needs_sample == (last == len(token_ids)), "needs_sample is wrong"
        assert share.needs_sample or not drafts, "drafts that nobody verifies"
        if share.needs_sample:
            result.sampled.append(self._verify(known, salt, drafts))

    def _verify(self, known: _Known, salt: str, drafts: list[int]) -> SampledTokens:
        """What follows, and what follows that, as long as it was guessed; then tokens that are forced, if any are."""
        sampled = SampledTokens(known.seq_id, [])
        for draft in [*drafts, None]:
            history = known.token_ids + sampled.token_ids
            sampled.token_ids.append(next_token(salt, known.new.seed, known.new.choice, history))
            if sampled.token_ids[-1] != draft:
                break
            sampled.num_accepted += 1
        self.num_accepted += sampled.num_accepted
        self.num_rejected += len(drafts) - sampled.num_accepted
        for _ in range(self.num_forced):
            history = known.token_ids + sampled.token_ids
            sampled.token_ids.append(next_token(salt, known.new.seed, known.new.choice, history))
        return sampled


def make_sequence(seq_id: int, prompt: Tokens[int], max_tokens: int = 4, **fields: Any) -> Sequence:
    """A sequence that arrives at second seq_id and stops at EOS; fields as in tests.fakes.make_sequence."""
    defaults: dict[str, Any] = {"seed": 7, "stop_token_ids": [EOS], "arrival_s": float(seq_id)}
    return fakes.make_sequence(seq_id, prompt, max_tokens, **{**defaults, **fields})


DRAFTERS = ("right", "wrong", "random")


class GuessingDrafter:
    """Guesses by how the checking worker samples: always right, always wrong, or now one and now the other."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def propose(self, sequence: Sequence, limit: int) -> list[int]:
        request, guesses = sequence.request, list[int]()
        for position in range(sequence.num_tokens, sequence.num_tokens + min(limit, 3)):
            history = sequence.token_ids(0, sequence.num_tokens) + guesses
            right = next_token(request.cache_salt, request.seed, sequence.choice, history)
            is_wrong = self.kind == "wrong" or (self.kind == "random" and position % 3 == 0)
            guesses.append((right + 1) % VOCAB_SIZE if is_wrong else right)
        return guesses


class Rig:
    """A scheduler with its manager and a checking worker; `step` and `finish` run them together."""

    def __init__(
        self,
        num_blocks: int = 64,
        block_size: int = 8,
        *,
        caching: bool = True,
        max_model_len: int | None = None,
        max_num_seqs: int = 8,
        max_num_batched_tokens: int = 64,
        chunked_prefill_size: int = 32,
        num_swap_blocks: int = 0,
        preemption_mode: str = "swap",
        policy: Policy | None = None,
        estimator: Estimator | None = None,
        drafter: Drafter | None = None,
        **scheduler: Any,
    ) -> None:
        self.config = ResolvedSchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            chunked_prefill_size=chunked_prefill_size,
            max_model_len=max_model_len or num_blocks * block_size,
            preemption_mode=preemption_mode,
            **scheduler,
        )
        self.manager = KVCacheManager(num_blocks, block_size, caching, "v1", num_swap_blocks)
        estimator = estimator or Estimator()
        self.preemption = Preemption(estimator.step_time, preemption_mode)
        policy = policy or make_policy("fcfs")
        self.scheduler = Scheduler(self.config, self.manager, policy, estimator, self.preemption, drafter)
        self.worker = CheckingWorker(num_blocks, block_size)
        self.updates: list[SequenceUpdate] = []
        self.plans: list[StepPlan] = []
        self.results: dict[int, StepResult] = {}
        """Of steps that the worker has run and that are not settled."""

    def add(self, *sequences: Sequence) -> None:
        for sequence in sequences:
            self.worker.salts[sequence.seq_id] = sequence.request.cache_salt
            self.scheduler.add(sequence)

    def schedule(self) -> StepPlan:
        plan = self.scheduler.schedule(float(len(self.plans)))
        assert plan is not None
        self.plans.append(plan)
        self.check_plan(plan)
        return plan

    def run(self, plan: StepPlan, failed: Tokens[int] = ()) -> None:
        """The worker runs the plan; its result waits to be settled."""
        self.results[plan.step_id] = self.worker.run(plan, failed)

    def settle(self, plan: StepPlan, failed: Tokens[int] = ()) -> list[SequenceUpdate]:
        if plan.step_id not in self.results:
            self.run(plan, failed)
        updates = self.scheduler.settle(plan, self.results.pop(plan.step_id), float(len(self.plans)))
        self.updates += updates
        self.scheduler.check_integrity()
        return updates

    def step(self) -> list[SequenceUpdate]:
        return self.settle(self.schedule())

    def finish(self) -> None:
        """Run to the end and check that everything came home."""
        while self.scheduler.has_work():
            self.step()
        assert self.scheduler.schedule(0.0) is None
        assert self.manager.num_free == self.manager.num_blocks
        assert self.scheduler.num_running == self.scheduler.num_waiting == 0
        assert self.manager.stats().num_swapped == 0

    def reconfigure(
        self, config: ResolvedSchedulerConfig, num_blocks: int, block_size: int, num_swap_blocks: int = 0
    ) -> RelayoutPlan:
        """Between two steps: other budgets, another pool, another swap space."""
        before = replace(resolved_config(), scheduler=self.config)
        after = replace(resolved_config(num_blocks, block_size, num_swap_blocks), scheduler=config)
        plan, result = plan_relayout(self.scheduler, self.manager, before, after), RelayoutResult()
        self.scheduler.check_integrity()
        if plan.relayout is not None:
            result = self.worker.reconfigure(plan.relayout)
        if plan.slots is not None:
            plan.manager.swap.resize(plan.slots, result.lost_slots)
        self.scheduler.reconfigure(config, plan.manager, plan.victims, result.swap_block_s)
        self.manager, self.config = plan.manager, config
        self.scheduler.check_integrity()
        return plan

    def check_plan(self, plan: StepPlan) -> None:
        self.scheduler.check_integrity()
        config = self.config
        assert plan.num_tokens <= config.max_num_batched_tokens
        assert len(plan.sequences) <= config.max_num_seqs
        assert len({share.seq_id for share in plan.sequences}) == len(plan.sequences)
        sizes = [share.num_new for share in plan.sequences]
        kinds = [share.kind for share in plan.sequences]
        chunk = config.chunked_prefill_size if config.target_itl is None else config.max_num_batched_tokens
        assert all(1 <= size <= chunk for size in sizes)
        assert kinds == sorted(kinds, reverse=True), "decodes stand first"
