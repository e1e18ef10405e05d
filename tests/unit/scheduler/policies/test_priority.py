"""Priority: order, and room made by preemption."""

from __future__ import annotations

from tests.unit.scheduler.checking_worker import Rig, make_sequence
from tests.unit.scheduler.test_scheduler import endless

from octavo.config.scheduler import PRIORITY_POLICIES
from octavo.scheduler.policies.registry import POLICIES, make_policy
from octavo.sequence import SequenceState


def test_lower_numbers_run_first_and_equal_ones_in_order_of_arrival() -> None:
    rig = Rig(max_num_seqs=1, policy=make_policy("priority"))
    rig.add(*[make_sequence(i, [i], 1, priority=p) for i, p in ((1, 3), (2, -1), (3, 0), (4, -1))])
    order = []
    while rig.scheduler.has_work():
        plan = rig.schedule()
        order += [share.seq_id for share in plan.sequences]
        rig.settle(plan)
    assert order == [2, 4, 3, 1]


def test_a_seat_is_taken_from_a_larger_number_which_then_goes_on_where_it_was() -> None:
    rig = Rig(max_num_seqs=2, policy=make_policy("priority"))
    low, mid, high = endless(1, 5, priority=9), endless(2, 5, priority=5), endless(3, 5, priority=0)
    rig.add(low, mid)
    rig.step()
    rig.add(high)
    plan = rig.schedule()
    assert [share.seq_id for share in plan.sequences] == [2, 3] and plan.removed == [1]
    assert low.state is SequenceState.PREEMPTED and low.num_displaced == 0
    rig.settle(plan)
    rig.finish()
    assert all(len(sequence.output_token_ids) == 8 for sequence in (low, mid, high))


def test_blocks_are_taken_from_larger_numbers_until_the_smaller_one_fits() -> None:
    rig = Rig(num_blocks=7, block_size=8, policy=make_policy("priority"))
    lows = [endless(i, 14, priority=9) for i in (1, 2, 3)]
    rig.add(*lows)
    rig.step()
    high = endless(4, 30, priority=0)
    rig.add(high)
    rig.step()
    assert high.state is SequenceState.RUNNING
    assert [low.state is SequenceState.PREEMPTED for low in lows] == [False, True, True]
    rig.finish()


def test_equal_priorities_never_preempt_each_other() -> None:
    rig = Rig(max_num_seqs=1, policy=make_policy("priority"))
    rig.add(endless(1, 5), endless(2, 5))
    rig.finish()
    assert rig.scheduler.num_preemptions == 0


def test_only_this_policy_reads_priorities() -> None:
    low, high = endless(1, 5), endless(2, 5, priority=-1)
    policies = {name: make_policy(name) for name in POLICIES.names}
    assert {name for name, policy in policies.items() if policy.key(low) != policy.key(high)} == PRIORITY_POLICIES
