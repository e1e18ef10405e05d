"""Fair: tenants share the machine by the service they have been given."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from octavo.sequence import Sequence

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
        self._last_closed = 0.0
        """Counter of the tenant that was the last one to leave the queue."""

    def of(self, sequence: Sequence) -> str:
        return sequence.tenant

    def rank(self, lane: str) -> float:
        return self._counters.get(lane, 0.0)

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
        self._admitted_s[sequence.tenant] = now

    def served(self, sequence: Sequence, num_prompt: int, num_output: int) -> None:
        tenant = sequence.tenant
        service = PROMPT_WEIGHT * num_prompt + OUTPUT_WEIGHT * num_output
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


class Fair:
    """The tenant that has been given least goes first, its own sequences in order of arrival; the one given most is preempted.

    Service is 1 per prompt token computed (cached ones are free) and 2 per token generated, divided by the tenant's weight. A
    prompt is charged when it is admitted, once; an output token when it is there. What preemption makes the engine compute
    again is not charged.

    Guarantee: while two tenants both have waiting sequences and no tenant is overdue, the service they are given (divided by
    weight) differs by at most 2 U, U = max(longest prompt, 2 * tokens the KV cache holds) / least weight, however long that
    lasts and whatever a third one sends; and the machine never idles for it. Within a tenant it is first come, first served.

    A tenant is overdue, and then goes ahead of the counters (once, and charged), when its first sequence has waited for
    max_wait and none of its own was admitted in that time. So the k-th sequence of a tenant's queue waits at most k times
    max_wait plus what those that run still need; who sends more than its share waits for itself, not at the cost of others.

    Source: Sheng et al., Fairness in Serving Large Language Models, OSDI 2024 (VTC, algorithm 2, theorem 4.4).
    """

    reads_priority = False
    reads_estimate = False
    preempts = False

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.lanes = TenantCounters(weights)

    def place(self, sequence: Sequence) -> tuple[float, ...]:
        return ()
