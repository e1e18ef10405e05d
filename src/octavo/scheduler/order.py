"""Order: a policy's sorting under the starvation bound that all policies share."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.scheduler.policies.interface import Policy
from octavo.sequence import Sequence

SortKey = tuple[float, ...]


class Order:
    """Sorts sequences, smallest key first.

    Starvation bound: a sequence that arrived max_wait_s ago or earlier is overdue. Overdue sequences stand before all others,
    in order of arrival, whatever the policy says, and give way to nobody who is not overdue. So from that moment on a sequence
    waits only for those that run and for those that arrived before it, as under fcfs. Where lanes are weighed against each
    other, the time counts from the last admission of the lane, if that was later.
    """

    __slots__ = ("max_wait_s", "policy")

    def __init__(self, policy: Policy, max_wait_s: float) -> None:
        self.policy = policy
        self.max_wait_s = max_wait_s

    def waits_since(self, sequence: Sequence) -> float:
        lanes = self.policy.lanes
        return max(sequence.request.arrival_s, lanes.last_admission_s(lanes.of(sequence)))

    def is_overdue(self, sequence: Sequence, now: float) -> bool:
        return self.waits_since(sequence) <= now - self.max_wait_s

    def key(self, sequence: Sequence, now: float) -> SortKey:
        """Where it stands among all live sequences at this moment; no two keys are equal."""
        if self.is_overdue(sequence, now):
            return (0.0, self.waits_since(sequence), sequence.request.arrival_s, sequence.seq_id)
        policy = self.policy
        lanes = policy.lanes
        return (1.0, lanes.key(lanes.of(sequence)), *policy.key(sequence), sequence.request.arrival_s, sequence.seq_id)

    def victim(self, running: Iterable[Sequence], now: float) -> Sequence:
        """Who of the running sequences (at least one) is preempted when no block is left: the last one."""
        return max(running, key=lambda sequence: self.key(sequence, now))

    def gives_way(self, waiting: Sequence, running: Iterable[Sequence], now: float) -> Sequence | None:
        """Who of the running sequences is preempted so that a waiting one can run; None when nobody has to."""
        if not self.policy.preempts:
            return None
        key, own = self.policy.key, self.policy.key(waiting)
        lower = [sequence for sequence in running if key(sequence) > own and not self.is_overdue(sequence, now)]
        return self.victim(lower, now) if lower else None
