"""Priority: the request's own number decides; lower goes first."""

from __future__ import annotations

from octavo.scheduler.policies.lanes import OneLane
from octavo.sequence import Sequence


class Priority:
    """Sequences are admitted by (priority, arrival); the largest is preempted first, also to make room for a smaller one.

    Guarantee: among sequences that are not overdue, none is admitted while one with a smaller priority could be, and one that
    finds no seat or no blocks takes those of running sequences with a larger priority, latest arrival first. What is taken from
    a sequence is its place, never a token: it is computed again. Equal priorities are first come, first served. No sequence
    waits longer than max_wait plus what those that run and those that arrived earlier still need; from max_wait after its
    arrival on a running one is safe from higher priorities, too.
    """

    reads_estimate = False
    preempts = True

    def __init__(self) -> None:
        self.lanes = OneLane()

    def key(self, sequence: Sequence) -> tuple[float, ...]:
        return (sequence.request.priority,)
