"""First come, first served: order and victim."""

from __future__ import annotations

from tests.unit.scheduler.checking_worker import make_sequence

from octavo.scheduler.order import Order
from octavo.scheduler.policies.fcfs import FirstComeFirstServed


def test_the_earlier_arrival_ranks_first() -> None:
    order = Order(FirstComeFirstServed(), 60.0)
    assert order.key(make_sequence(9, [1], arrival_s=1.0), 2.0) < order.key(make_sequence(2, [1], arrival_s=1.5), 2.0)


def test_the_latest_arrival_gives_way_and_of_equal_ones_the_youngest() -> None:
    sequences = [make_sequence(i, [1], arrival_s=a) for i, a in ((5, 1.0), (4, 3.0), (7, 3.0), (6, 2.0))]
    assert Order(FirstComeFirstServed(), 60.0).victim(sequences, 4.0).seq_id == 7
