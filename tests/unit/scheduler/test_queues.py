"""The waiting queue."""

from __future__ import annotations

import pytest
from tests.unit.scheduler.checking_worker import make_sequence

from octavo.scheduler.order import Order
from octavo.scheduler.policies.fcfs import FirstComeFirstServed
from octavo.scheduler.queues import WaitingQueue


def fcfs_queue() -> WaitingQueue:
    return WaitingQueue(Order(FirstComeFirstServed(), 60.0))


def test_sequences_stand_in_policy_order_and_ties_in_order_of_id() -> None:
    queue = fcfs_queue()
    for seq_id, arrival in ((3, 2.0), (1, 2.0), (2, 1.0), (4, 0.5)):
        queue.add(make_sequence(seq_id, [1], arrival_s=arrival))
    assert [sequence.seq_id for sequence in queue.candidates(9.0)] == [4, 2, 1, 3] and len(queue) == 4


def test_a_sequence_is_removed_from_the_middle() -> None:
    queue = fcfs_queue()
    sequences = [make_sequence(i, [1], arrival_s=1.0) for i in range(5)]
    for sequence in sequences:
        queue.add(sequence)
    queue.remove(sequences[2])
    assert [sequence.seq_id for sequence in queue] == [0, 1, 3, 4]
    with pytest.raises(AssertionError, match="sequence 2 is not waiting"):
        queue.remove(sequences[2])
