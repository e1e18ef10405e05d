"""The starvation bound over all policies, and who gives way."""

from __future__ import annotations

import pytest
from tests.unit.scheduler.checking_worker import Rig, make_sequence

from octavo.scheduler.estimator import Estimator
from octavo.scheduler.order import Order
from octavo.scheduler.policies.fcfs import FirstComeFirstServed
from octavo.scheduler.policies.priority import Priority
from octavo.scheduler.policies.registry import make_policy
from octavo.scheduler.queues import WaitingQueue
from octavo.sequence import Sequence


def sorted_ids(order: Order, sequences: list[Sequence], now: float) -> list[int]:
    return [sequence.seq_id for sequence in sorted(sequences, key=lambda sequence: order.key(sequence, now))]


def test_an_overdue_sequence_stands_before_better_ones_and_older_before_younger() -> None:
    order = Order(Priority(), max_wait_s=10.0)
    sequences = [make_sequence(i, [1], arrival_s=a, priority=p) for i, a, p in ((1, 3.0, 9), (2, 2.0, 5), (3, 8.0, 0))]
    assert sorted_ids(order, sequences, now=11.0) == [3, 2, 1]
    assert sorted_ids(order, sequences, now=12.0) == [2, 3, 1]
    assert sorted_ids(order, sequences, now=13.0) == [2, 1, 3]


def test_the_last_one_is_the_victim() -> None:
    order = Order(Priority(), max_wait_s=10.0)
    sequences = [make_sequence(i, [1], arrival_s=float(i), priority=p) for i, p in ((1, 9), (2, 5), (3, 5))]
    assert order.victim(sequences, now=4.0).seq_id == 1
    assert order.victim(sequences, now=11.0).seq_id == 3, "the first is overdue by now"


def test_nobody_gives_way_to_a_waiting_one_unless_the_policy_preempts() -> None:
    low, high = make_sequence(1, [1], priority=5), make_sequence(2, [1], priority=1)
    assert Order(Priority(), 60.0).gives_way(high, [low], now=3.0) is low
    assert Order(Priority(), 60.0).gives_way(low, [high], now=3.0) is None
    assert Order(Priority(), 60.0).gives_way(low, [low], now=3.0) is None, "equal priorities"
    assert Order(Priority(), 1.0).gives_way(high, [low], now=3.0) is None, "the running one is overdue"
    assert Order(FirstComeFirstServed(), 60.0).gives_way(high, [low], now=3.0) is None


@pytest.mark.parametrize("name", ["fcfs", "sjf", "priority", "fair"])
def test_the_queue_and_the_key_agree_under_every_policy(name: str) -> None:
    order = Order(make_policy(name, Estimator(), {"a": 3.0}), max_wait_s=6.0)
    queue = WaitingQueue(order)
    sequences = [
        make_sequence(i, [1], arrival_s=float(i * 7 % 10), priority=i % 3, tenant="abc"[i % 3], expected_s=float(i * 3 % 11))
        for i in range(30)
    ]
    for sequence in sequences:
        queue.add(sequence)
        order.policy.lanes.served(sequence, sequence.seq_id)
    now = 5.0 if name == "fair" else 9.0  # of an overdue tenant only the first sequence goes ahead
    assert [sequence.seq_id for sequence in queue.candidates(now)] == sorted_ids(order, sequences, now)


def test_candidates_may_be_taken_while_they_are_walked_through() -> None:
    queue = WaitingQueue(Order(make_policy("fair"), 50.0))
    for i in range(12):
        queue.add(make_sequence(i, [1], arrival_s=float(i), tenant="abc"[i % 3]))
    seen = []
    for sequence in queue.candidates(9.0):
        seen.append(sequence.seq_id)
        if sequence.seq_id % 2:
            queue.remove(sequence)
    assert sorted(seen) == list(range(12))
    assert [sequence.seq_id for sequence in queue] == [0, 2, 4, 6, 8, 10]


def test_of_an_overdue_tenant_one_sequence_goes_ahead_and_then_the_counters_rule_again() -> None:
    order = Order(make_policy("fair"), max_wait_s=10.0)
    queue, lanes = WaitingQueue(order), order.policy.lanes
    sequences = [make_sequence(i, [1], arrival_s=0.0, tenant="ab"[i % 2]) for i in range(4)]
    for sequence in sequences:
        queue.add(sequence)
    lanes.served(sequences[1], 1000)
    assert next(queue.candidates(9.0)).request.tenant == "a"
    lanes.admitted(sequences[0], 9.0)
    queue.remove(sequences[0])
    first = next(queue.candidates(12.0))
    assert first.seq_id == 1, "b has waited for more than 10 s, a was served 3 s ago"
    lanes.admitted(first, 12.0)
    queue.remove(first)
    assert [sequence.seq_id for sequence in queue.candidates(12.0)] == [2, 3]


def test_a_policy_is_swapped_between_two_steps_and_the_queue_stands_anew() -> None:
    rig = Rig(max_num_seqs=1)
    rig.add(*[make_sequence(i, [i], 1, priority=-i) for i in range(4)])
    rig.step()
    rig.scheduler.set_policy(make_policy("priority"))
    order = []
    while rig.scheduler.has_work():
        plan = rig.schedule()
        order += [share.seq_id for share in plan.sequences]
        rig.settle(plan)
    assert order == [3, 2, 1]
