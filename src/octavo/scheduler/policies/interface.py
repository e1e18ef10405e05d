"""Policy: who is served first. One policy per file; each states its guarantee in its docstring."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from octavo.sequence import Sequence


class Lanes(Protocol):
    """Groups of requests that a policy weighs against each other. A lane's key may change at any moment, but only upwards."""

    weighed: bool
    """Whether there may be several. Then the starvation bound holds for the first sequence of every lane: who fills its own
    lane waits for itself, and would otherwise, once overdue, be served ahead of all others."""

    def of(self, sequence: Sequence) -> str:
        """The lane of a sequence; always the same one."""

    def key(self, lane: str) -> float:
        """Of a lane with waiting or running sequences; smallest first. Decides whose turn it is in a step."""

    def next_key(self, lane: str) -> float:
        """The key with what the lane has been promised; smallest first. Decides from which lane the next one is admitted."""

    def opens(self, lane: str, others: Iterable[str]) -> None:
        """A lane without waiting sequences is about to get one; sequences of `others` wait already."""

    def closes(self, lane: str) -> None:
        """The last waiting sequence has left its lane."""

    def last_admission_s(self, lane: str) -> float:
        """When a sequence of the lane was admitted last; minus infinity where that does not matter."""

    def admitted(self, sequence: Sequence, now: float) -> None:
        """The sequence has left the queue for a step; num_computed is what it starts from."""

    def served(self, sequence: Sequence, num_output: int) -> None:
        """A step of the sequence is settled: num_computed is where it is now, num_output how many tokens it has generated."""


class Policy(Protocol):
    """Sorts sequences, smallest first: by the key of their lane, then by their key in it, then by arrival.

    `scheduler.order` lays the starvation bound over every policy.
    """

    reads_estimate: bool
    """Whether sequence.expected_s must be set before its key is asked for."""
    preempts: bool
    """Whether a running sequence is preempted when one with a smaller key finds no room."""

    @property
    def lanes(self) -> Lanes: ...

    def key(self, sequence: Sequence) -> tuple[float, ...]:
        """Where it stands within its lane. Asked for once while a sequence waits; of a running one it may change."""
