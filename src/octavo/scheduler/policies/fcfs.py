"""First come, first served."""

from __future__ import annotations

from octavo.scheduler.policies.lanes import OneLane
from octavo.sequence import Sequence


class FirstComeFirstServed:
    """Waiting sequences are admitted in order of arrival; the latest arrival is preempted first.

    Guarantee: nothing that arrived later is admitted while an earlier sequence could be, and a preempted sequence returns to
    the place its arrival gives it, ahead of all that came after. The earliest unfinished sequence is never preempted for
    another one and takes part in every step, so a sequence with k unfinished sequences before it is in the cache for good after
    at most the steps that those k need alone: sum of (tokens to prefill + tokens to generate), with 1 token per step as the
    worst case.
    """

    reads_estimate = False
    preempts = False

    def __init__(self) -> None:
        self.lanes = OneLane()

    def key(self, sequence: Sequence) -> tuple[float, ...]:
        return ()
