"""Fair: tenants share the machine by the service they have been given."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from octavo.sequence import Sequence, SequenceState

PROMPT_WEIGHT = 1.0
OUTPUT_WEIGHT = 2.0
"""Cost of a generated token relative to a prompt token, as in the paper; also roughly the ratio of their list prices."""
MAX_IDLE_TENANTS = 4096


class TenantCounters:
    """One virtual token counter per tenant: service given, divided by the tenant's weight. The lane of a tenant is its name."""

    weighed = True

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = dict(weights)
        self._counters: OrderedDict[str, float] = OrderedDict()
        self._waiting: set[str] = set()
        self._admitted_s: dict[str, float] = {}
        self._prefills: dict[str, list[Sequence]] = {}
        """Admitted sequences whose prompts may not be computed yet."""
        self._last_closed = 0.0
        """Counter of the tenant that was the last one to leave the queue."""

    def of(self, sequence: Sequence) -> str:
        return sequence.request.tenant

    def key(self, lane: str) -> float:
        return self._counters.get(lane, 0.0)

    def next_key(self, lane: str) -> float:
        """Prompts that were admitted but are not computed yet count as if they were.

        Else one tenant could take all seats before the first of its chunks is charged.
        """
        prefills = [sequence for sequence in self._prefills.get(lane, ()) if _is_prefill(sequence)]
        if prefills:
            self._prefills[lane] = prefills
        else:
            self._prefills.pop(lane, None)
        promised = sum(sequence.num_prompt - sequence.num_charged for sequence in prefills)
        return self.key(lane) + PROMPT_WEIGHT * promised / self._weights.get(lane, 1.0)

    def opens(self, lane: str, others: Iterable[str]) -> None:
        """A newcomer starts at the active minimum: what it did not ask for while it was away is not owed to it."""
        floor = min((self._counters[other] for other in others), default=self._last_closed)
        self._counters[lane] = max(self._counters.get(lane, 0.0), floor)
        self._counters.move_to_end(lane)
        self._waiting.add(lane)
        self._forget_idle()

    def closes(self, lane: str) -> None:
        self._waiting.discard(lane)
        self._last_closed = self._counters[lane]

    def last_admission_s(self, lane: str) -> float:
        return self._admitted_s.get(lane, -math.inf)

    def admitted(self, sequence: Sequence, now: float) -> None:
        tenant = sequence.request.tenant
        self._admitted_s[tenant] = now
        sequence.num_charged = max(sequence.num_charged, min(sequence.num_computed, sequence.num_prompt))
        if _is_prefill(sequence):
            self._prefills.setdefault(tenant, []).append(sequence)

    def served(self, sequence: Sequence, num_output: int) -> None:
        tenant, service = sequence.request.tenant, OUTPUT_WEIGHT * num_output
        num_prompt = min(sequence.num_computed, sequence.num_prompt) - sequence.num_charged
        if num_prompt > 0:
            sequence.num_charged += num_prompt
            service += PROMPT_WEIGHT * num_prompt
        self._counters[tenant] = self._counters.get(tenant, 0.0) + service / self._weights.get(tenant, 1.0)

    def _forget_idle(self) -> None:
        """Bound the memory that invented tenants can take; one that comes back after so many others starts as a newcomer."""
        if len(self._counters) <= MAX_IDLE_TENANTS + len(self._waiting):
            return
        for tenant in self._counters:
            if tenant not in self._waiting:
                del self._counters[tenant]
                self._admitted_s.pop(tenant, None)
                return


def _is_prefill(sequence: Sequence) -> bool:
    return sequence.state is SequenceState.RUNNING and sequence.num_charged < sequence.num_prompt


class Fair:
    """The tenant that has been given least goes first, its own sequences in order of arrival; the one given most is preempted.

    Service is 1 per prompt token computed (cached ones are free) and 2 per token generated, divided by the tenant's weight. It
    is charged when it has been given; the next sequence is admitted from the tenant that has least with what is still to be
    given to its admitted prompts. So a short request of one tenant passes a long prompt of another between two of its chunks.
    What preemption makes the engine compute again is not charged.

    Guarantee: while two tenants both have waiting sequences and no tenant is overdue, the service they are given (divided by
    weight) differs by at most 2 U, U = max(longest prompt, 2 * tokens the KV cache holds) / least weight, however long that
    lasts and whatever a third one sends; and the machine never idles for it. Within a tenant it is first come, first served.

    A tenant is overdue, and then goes ahead of the counters (once, and charged), when its first sequence has waited for
    max_wait and none of its own was admitted in that time. So the k-th sequence of a tenant's queue waits at most k times
    max_wait plus what those that run still need; who sends more than its share waits for itself, not at the cost of others.

    Source: Sheng et al., Fairness in Serving Large Language Models, OSDI 2024 (VTC, algorithm 2, theorem 4.4).
    """

    reads_estimate = False
    preempts = False

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.lanes = TenantCounters(weights)

    def key(self, sequence: Sequence) -> tuple[float, ...]:
        return ()
