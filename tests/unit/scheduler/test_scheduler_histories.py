"""Random histories of a tiny engine at one, two and three steps in flight, while limits change and where nearly all swap."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test
from tests.unit.scheduler.histories import Histories
from tests.unit.scheduler.mechanisms import DEEP_MECHANISMS, MECHANISMS, SWAP_MECHANISMS


class ChangingHistories(Histories):
    """The same while limits change."""

    @precondition(lambda self: not self.plans)
    @rule(
        admission=st.sampled_from(["optimistic", "eager", "guaranteed"]),
        max_wait=st.sampled_from([0.0, 5.0, 1000.0]),
        target_itl=st.sampled_from([None, 3000.0]),
        queue_timeout=st.sampled_from([None, None, 2.0]),
    )
    def change_limits(self, admission: str, max_wait: float, target_itl: float | None, queue_timeout: float | None) -> None:
        manager = self.rig.manager
        config = replace(
            self.rig.config, admission=admission, max_wait=max_wait, target_itl=target_itl, queue_timeout=queue_timeout
        )
        self.admissions.add(admission)
        plan = self.rig.reconfigure(config, manager.num_blocks, manager.block_size, manager.swap.num_slots)
        assert plan.relayout is None and not plan.victims, "the worker has nothing to do with these"


class SwappingHistories(Histories):
    """The same where nearly every history swaps; in some no slot can be written, or none read back. Small steps leave work
    for those behind them."""

    @initialize(
        num_blocks=st.integers(4, 8),
        max_num_seqs=st.integers(3, 5),
        caching=st.booleans(),
        num_swap_blocks=st.sampled_from([4, 20, 20]),
        max_num_batched_tokens=st.sampled_from([3, 6, 24]),
        fault=st.sampled_from(["", "", "writing", "reading"]),
    )
    def build(
        self,
        num_blocks: int,
        max_num_seqs: int,
        caching: bool,
        num_swap_blocks: int,
        max_num_batched_tokens: int,
        fault: str,
    ) -> None:
        self._begin(
            num_blocks,
            caching=caching,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            chunked_prefill_size=12,
            num_swap_blocks=num_swap_blocks,
            preemption_mode="swap",
        )
        self.rig.worker.bad_slots = set(range(20)) if fault == "writing" else set()
        self.rig.worker.unreadable = set(range(20)) if fault == "reading" else set()


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize(
    ("machine", "mechanisms", "max_examples"), [(ChangingHistories, MECHANISMS, 200), (SwappingHistories, SWAP_MECHANISMS, 160)]
)
def test_every_history_keeps_the_books_and_the_tokens(
    machine: type[Histories], mechanisms: tuple[str, ...], max_examples: int, depth: int
) -> None:
    machine.seen, machine.depth = Counter(), depth
    if depth > 1:
        mechanisms += DEEP_MECHANISMS
    for luck in range(4):  # some mechanisms are rare: who has not met them all goes on with other histories
        run_state_machine_as_test(
            seed(luck)(machine) if settings().derandomize else machine,
            settings=settings(
                max_examples=max_examples, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
            ),
        )
        if all(machine.seen[mechanism] > 0 for mechanism in mechanisms):
            return
    missed = [mechanism for mechanism in mechanisms if not machine.seen[mechanism]]
    raise AssertionError(f"never happened: {missed}; {machine.seen}")
