"""ExpectedGrowth: the scheduler's AdmissionRule over many running sequences, without asking each of them in every step."""

from __future__ import annotations

import heapq
from typing import Protocol

from octavo.config.cache import blocks_for
from octavo.kvcache.manager import KVCacheManager
from octavo.scheduler.admission import AdmissionRule
from octavo.scheduler.estimator import Estimator
from octavo.sequence import Sequence

NO_DECODE = 2**62
"""In place of a step count, for what does not decode."""


class Counted(Protocol):
    """A request as it is counted. sequence has no prompt (its length is num_prompt) and only as many tokens as it was asked
    about with: a million waiting requests must not hold their prompts."""

    sequence: Sequence
    num_prompt: int


class ExpectedGrowth:
    """Blocks that all running sequences are counted with.

    A sequence is counted with one number until it has produced as many tokens as it was expected to; only then is the rule
    asked again. Those are found through a heap over the step at which it will be so. Sequences about which there is no history
    are asked every time: they are few, for eight ended answers make a history.
    """

    def __init__(self, admission: str, block_size: int) -> None:
        self._estimator = Estimator()
        self.rule = AdmissionRule(admission, KVCacheManager(1, block_size), self._estimator)
        self._size = block_size
        self._guaranteed = admission == "guaranteed"
        self.eager = admission == "eager"
        """Each is counted with what it has and one more: the caller knows that from the blocks it grants."""
        self._known: dict[int, tuple[int, int]] = {}
        """seq_id to the blocks it is counted with, and its origin (see enter)."""
        self._total = 0
        """Sum of _known."""
        self._unknown: dict[int, tuple[Counted, int]] = {}
        """Those to ask about, with their origin."""
        self._outgrown: list[tuple[int, int, Counted, int]] = []
        """Heap of (step at which it has what was expected, seq_id, the request, its origin)."""

    def blocks_of(self, counted: Counted, produced: int) -> int:
        """Blocks one sequence is counted with, having produced so many tokens."""
        counted.sequence.output_token_ids = [0] * produced
        return blocks_for(counted.num_prompt + self.rule.final_tokens(counted.sequence), self._size)

    def enter(self, counted: Counted, produced: int, origin: int) -> None:
        """It runs. origin: the step count at which it would have had no output, if it decodes from now on, else NO_DECODE."""
        if self.eager:
            return
        self.leave(counted)
        sequence = counted.sequence
        expected = sequence.request.max_tokens if self._guaranteed else sequence.expected_output
        if self._guaranteed or expected > produced:
            blocks = blocks_for(counted.num_prompt + expected, self._size)
            self._known[sequence.seq_id] = blocks, origin
            self._total += blocks
            if origin != NO_DECODE and not self._guaranteed:
                heapq.heappush(self._outgrown, (origin + expected, sequence.seq_id, counted, origin))
        else:
            self._unknown[sequence.seq_id] = (counted, origin)

    def leave(self, counted: Counted) -> None:
        """It does not run any more."""
        seq_id = counted.sequence.seq_id
        self._total -= self._known.pop(seq_id, (0, 0))[0]
        self._unknown.pop(seq_id, None)

    def end(self, counted: Counted, produced: int) -> None:
        """It has ended: its length is history."""
        if self.eager:
            return
        self.leave(counted)
        counted.sequence.output_token_ids = [0] * produced
        self._estimator.observe_end(counted.sequence)

    def total(self, step: int) -> int:
        """Blocks all running sequences are counted with at this step."""
        outgrown = self._outgrown
        while outgrown and outgrown[0][0] <= step:
            due, seq_id, counted, origin = heapq.heappop(outgrown)
            blocks, current = self._known.get(seq_id, (0, NO_DECODE))
            # Entries from before a preemption, or before another answer of the rule, are out of date.
            if current == origin and due == origin + counted.sequence.expected_output:
                del self._known[seq_id]
                self._total -= blocks
                self._unknown[seq_id] = (counted, origin)
        total = self._total
        for counted, origin in list(self._unknown.values()):
            produced = step - origin if origin != NO_DECODE else len(counted.sequence.output_token_ids)
            total += self.blocks_of(counted, produced)
            if counted.sequence.expected_output > produced:
                self.enter(counted, produced, origin)
        return total

    def next_question(self) -> int:
        """The step at which the rule must be asked again at the earliest, if nobody comes or goes."""
        return self._outgrown[0][0] if self._outgrown else NO_DECODE
