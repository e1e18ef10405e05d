"""InFlight: the steps that are planned and not settled."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from octavo.kvcache.manager import KVCacheManager
from octavo.sequence import Sequence
from octavo.step import StepPlan


class InFlight:
    """Oldest first. They run and are settled in this order, and a sequence has a share of one of them at most.

    orphans  sequences that ended while in flight: the device may still write to their blocks, which are freed when their step
             is over
    """

    def __init__(self) -> None:
        self.orphans: set[int] = set()
        self._steps: deque[tuple[StepPlan, float]] = deque()
        """With the time at which each was planned."""
        self._settled_s = 0.0

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def moves_blocks(self) -> bool:
        """Whether the newest step moves blocks to the swap space or from it."""
        return bool(self._steps) and bool(self._steps[-1][0].swap_in or self._steps[-1][0].swap_out)

    def add(self, plan: StepPlan, running: Mapping[int, Sequence], now: float) -> None:
        """The plan was made. Its sequences run."""
        for share in plan.sequences:
            running[share.seq_id].in_flight = True
        self._steps.append((plan, now))

    def settle(self, plan: StepPlan, now: float) -> float:
        """The oldest step is over. Returns the seconds it took: while steps before it ran, it did not."""
        oldest, planned_s = self._steps.popleft()
        assert plan is oldest, f"step {plan.step_id} is not the oldest in flight"
        step_s, self._settled_s = now - max(planned_s, self._settled_s), now
        return step_s

    def drop(self) -> list[StepPlan]:
        """No step in flight will be settled. Returns them all; `land` each of them."""
        plans = [plan for plan, _ in self._steps]
        self._steps.clear()
        return plans

    def land(
        self,
        plan: StepPlan,
        running: Mapping[int, Sequence],
        manager: KVCacheManager,
        lost_slots: Iterable[int],
        lost_blocks: Iterable[int],
    ) -> None:
        """The step, the oldest of all, is over: its sequences may be scheduled again, and what is left of its orphans goes."""
        manager.end_step(lost_slots, lost_blocks)
        get = running.get
        for share in plan.sequences:
            sequence = get(share.seq_id)
            if sequence is not None:
                sequence.in_flight = False
            elif share.seq_id in self.orphans:
                self.orphans.discard(share.seq_id)
                manager.free(share.seq_id)
