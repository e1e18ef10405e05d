"""StepBuilder: a step plan while it is being made; and WorkerMemory: what plans have told the worker."""

from __future__ import annotations

from collections.abc import Set
from typing import TypeAlias

from octavo.kvcache.block_table import Growth
from octavo.scheduler.budget import StepBudget
from octavo.sequence import Sequence
from octavo.step import NewSequence, ScheduledSequence, ShareKind, StepPlan

Pairs: TypeAlias = list[tuple[int, int]]


class WorkerMemory:
    """Which sequences the worker knows, how many of their tokens, and which of them it is to be told to forget."""

    __slots__ = ("_num_told", "_removed")

    def __init__(self) -> None:
        self._num_told: dict[int, int] = {}
        self._removed: list[int] = []

    @property
    def known(self) -> Set[int]:
        return self._num_told.keys()

    def tell(self, sequence: Sequence, num_tokens: int) -> list[int] | None:
        """The plan in the making tells the worker all num_tokens tokens of this sequence. Returns those that are new to it, in
        order; None if the sequence is new to it."""
        num_told = self._num_told.get(sequence.seq_id)
        self._num_told[sequence.seq_id] = num_tokens
        if num_told is None:
            return None
        # All of the prompt was told at once, so that what is left is output.
        return sequence.output_token_ids[num_told - num_tokens :] if num_told < num_tokens else []

    def forget(self, seq_id: int) -> None:
        """It has ended, or lost its blocks."""
        if self._num_told.pop(seq_id, None) is not None:
            self._removed.append(seq_id)

    def take_removed(self) -> list[int]:
        """Ids for the next plan to remove."""
        removed, self._removed = self._removed, []
        return removed

    def put_back(self, removed: list[int]) -> None:
        """The plan that was to remove these failed; the next one has to."""
        self._removed = removed + self._removed


class StepBuilder:
    """Shares by seq_id, in the order they were given, with the block copies each of them needs. They can be taken back."""

    __slots__ = ("_copies", "_worker", "budget", "shares")

    def __init__(self, budget: StepBudget, worker: WorkerMemory) -> None:
        self.budget = budget
        self.shares: dict[int, ScheduledSequence] = {}
        self._worker = worker
        self._copies: dict[int, list[tuple[int, int]]] = {}

    def add(
        self, sequence: Sequence, kind: ShareKind, num_new: int, growth: Growth, block_ids: list[int], drafts: list[int]
    ) -> None:
        """Give the sequence num_new known positions from num_computed on, and the drafts behind them.

        block_ids: what the worker appends to its table of the sequence.
        """
        first, num_tokens = sequence.num_computed, sequence.num_tokens
        needs_sample = first + num_new == num_tokens and sequence.request.pooling is None
        told = self._worker.tell(sequence, num_tokens)
        share = ScheduledSequence(
            sequence.seq_id,
            kind,
            first,
            num_new + len(drafts),
            block_ids,
            needs_sample,
            told or [],
            new_sequence(sequence) if told is None else None,
            growth.replaced,
            drafts,
        )
        self.budget.take(sequence, share)
        self.shares[sequence.seq_id] = share
        if growth.copies:
            self._copies[sequence.seq_id] = growth.copies

    def withdraw(self, sequence: Sequence) -> None:
        """Take back the share of a sequence that lost its blocks, if it had one."""
        share = self.shares.pop(sequence.seq_id, None)
        if share is not None:
            self.budget.refund(sequence, share)
            self._copies.pop(sequence.seq_id, None)

    def finish(self, step_id: int, removed: list[int], moves: tuple[Pairs, Pairs] = ([], [])) -> StepPlan:
        """The plan: decodes first, then prefills, each in the order they were given. moves: KVCacheManager.moves."""
        shares = list(self.shares.values())
        if any(share.kind is ShareKind.PREFILL for share in shares):
            shares.sort(key=lambda share: share.kind, reverse=True)
        copies = [pair for pairs in self._copies.values() for pair in pairs]
        return StepPlan(step_id, shares, copies, removed, *moves)


def kind_of(sequence: Sequence, first: int) -> ShareKind:
    """What a share of the sequence from position `first` on is."""
    is_decode = sequence.is_decoding or sequence.num_tokens - first == 1
    return ShareKind.DECODE if is_decode else ShareKind.PREFILL


def new_sequence(sequence: Sequence) -> NewSequence:
    """What the worker must be told of a sequence it does not know, or had to forget."""
    return NewSequence(
        token_ids=sequence.request.prompt_token_ids + sequence.output_token_ids,
        num_prompt=sequence.num_prompt,
        choice=sequence.choice,
        seed=sequence.request.seed,
        sampling=sequence.request.sampling,
        stop_token_ids=sorted(sequence.stop_token_ids),
        grammar=sequence.request.grammar,
        pooling=None if sequence.request.pooling is None else sequence.request.pooling.kind,
    )
