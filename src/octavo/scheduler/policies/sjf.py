"""Shortest job first: the least expected remaining time goes first."""

from __future__ import annotations

from octavo.scheduler.estimator import Estimator
from octavo.scheduler.policies.lanes import OneLane
from octavo.sequence import Sequence, SequenceState


class ShortestJobFirst:
    """Sequences are admitted by expected remaining seconds (see Estimator.remaining_s); the longest is preempted first.

    Guarantee: among sequences that are not overdue, none is admitted while one with a smaller estimate could be. With estimates
    in the right order, that gives the least mean waiting time for a set of jobs that are all there (Smith 1956); it is paid for
    by long ones, which wait until they are overdue while shorter ones keep coming. No sequence waits longer than max_wait plus
    what those that run and those that arrived earlier still need.

    The estimate of a waiting sequence is made when it starts to wait; of a running one it shrinks with its progress.
    """

    reads_estimate = True
    preempts = False

    def __init__(self, estimator: Estimator) -> None:
        self.lanes = OneLane()
        self._estimator = estimator

    def key(self, sequence: Sequence) -> tuple[float, ...]:
        is_running = sequence.state is SequenceState.RUNNING
        return (self._estimator.remaining_s(sequence) if is_running else sequence.expected_s,)
