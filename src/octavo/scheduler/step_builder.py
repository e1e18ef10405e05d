"""StepBuilder: a step plan while it is being made; and WorkerMemory: what plans have told the worker."""

from __future__ import annotations

from collections.abc import Set
from typing import TypeAlias

from octavo.kvcache.manager import Growth
from octavo.scheduler.budget import StepBudget
from octavo.sequence import Sequence
from octavo.step import NewSequence, ScheduledSequence, StepPlan

Pairs: TypeAlias = list[tuple[int, int]]


class StepBuilder:
    """Shares by seq_id, in the order they were given, with the block copies each of them needs. They can be taken back."""

    __slots__ = ("_copies", "budget", "shares")

    def __init__(self, budget: StepBudget) -> None:
        self.budget = budget
        self.shares: dict[int, ScheduledSequence] = {}
        self._copies: dict[int, list[tuple[int, int]]] = {}

    def add(self, sequence: Sequence, num_new: int, growth: Growth, new: NewSequence | None, block_ids: list[int]) -> None:
        """Give the sequence num_new positions from num_computed on. block_ids: what the worker appends to its table."""
        first = sequence.num_computed
        self.budget.take(sequence, first, num_new)
        needs_sample = first + num_new == sequence.num_tokens
        self.shares[sequence.seq_id] = ScheduledSequence(
            sequence.seq_id, first, num_new, block_ids, needs_sample, new, growth.replaced
        )
        if growth.copies:
            self._copies[sequence.seq_id] = growth.copies

    def withdraw(self, sequence: Sequence) -> None:
        """Take back the share of a sequence that lost its blocks, if it had one."""
        share = self.shares.pop(sequence.seq_id, None)
        if share is not None:
            self.budget.refund(sequence, share.num_computed, share.num_new)
            self._copies.pop(sequence.seq_id, None)

    def finish(self, step_id: int, removed: list[int], moves: tuple[Pairs, Pairs] = ([], [])) -> StepPlan:
        """The plan: one-token shares first, then chunks, each in the order they were given. moves: KVCacheManager.moves."""
        shares = list(self.shares.values())
        if any(share.num_new > 1 for share in shares):
            shares.sort(key=lambda share: share.num_new > 1)
        copies = [pair for pairs in self._copies.values() for pair in pairs]
        return StepPlan(step_id, shares, copies, removed, *moves)


def new_sequence(sequence: Sequence) -> NewSequence:
    """What the worker must be told of a sequence it does not know, or had to forget."""
    return NewSequence(
        token_ids=sequence.request.prompt_token_ids + sequence.output_token_ids,
        num_prompt=sequence.num_prompt,
        choice=sequence.choice,
        seed=sequence.request.seed,
        sampling=sequence.request.sampling,
        stop_token_ids=sorted(sequence.stop_token_ids),
    )


class WorkerMemory:
    """Which sequences the worker knows, and which of them it is to be told to forget."""

    __slots__ = ("_known", "_removed")

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._removed: list[int] = []

    @property
    def known(self) -> Set[int]:
        return self._known

    def learn(self, seq_id: int) -> None:
        """The plan in the making tells the worker of this sequence."""
        self._known.add(seq_id)

    def forget(self, seq_id: int) -> None:
        """It has ended, or lost its blocks."""
        if seq_id in self._known:
            self._known.discard(seq_id)
            self._removed.append(seq_id)

    def take_removed(self) -> list[int]:
        """Ids for the next plan to remove."""
        removed, self._removed = self._removed, []
        return removed

    def put_back(self, removed: list[int]) -> None:
        """The plan that was to remove these failed; the next one has to."""
        self._removed = removed + self._removed
