"""WaitingQueue: sequences that are in no step, in the order the policy gives them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from octavo.scheduler.order import Order
from octavo.sequence import Sequence

_Entry = tuple[tuple[float, ...], int, Sequence]
"""(key, seq_id, sequence). seq_id is unique, so that two entries never compare their sequences."""


class WaitingQueue:
    """One sorted list per lane of the policy, and one of all in order of arrival, for those that are overdue.

    A key is asked for once, when the sequence enters. Taking from the front of a list moves the rest by one; that is a
    few microseconds even for 100,000 waiting.
    """

    __slots__ = ("_arrivals", "_lanes", "_order", "_keys")

    def __init__(self, order: Order) -> None:
        self._order = order
        self._lanes: dict[str, list[_Entry]] = {}
        self._arrivals: list[_Entry] = []
        self._keys: dict[int, tuple[str, tuple[float, ...]]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Sequence]:
        """All, in order of arrival."""
        return (entry[2] for entry in self._arrivals)

    def add(self, sequence: Sequence) -> None:
        policy, seq_id = self._order.policy, sequence.seq_id
        lane = policy.lanes.of(sequence)
        if lane not in self._lanes:
            policy.lanes.opens(lane, self._lanes)
            self._lanes[lane] = []
        key = (*policy.key(sequence), sequence.request.arrival_s)
        self._keys[seq_id] = (lane, key)
        insort(self._lanes[lane], (key, seq_id, sequence))
        insort(self._arrivals, ((sequence.request.arrival_s,), seq_id, sequence))

    def remove(self, sequence: Sequence) -> None:
        """Take out a sequence that is in the queue."""
        assert sequence.seq_id in self._keys, f"sequence {sequence.seq_id} is not waiting"
        lane, key = self._keys.pop(sequence.seq_id)
        _take(self._lanes[lane], key, sequence)
        _take(self._arrivals, (sequence.request.arrival_s,), sequence)
        if not self._lanes[lane]:
            del self._lanes[lane]
            self._order.policy.lanes.closes(lane)

    def candidates(self, now: float) -> Iterator[Sequence]:
        """Those that wait, first to last. The one just given may be removed before the next one is asked for."""
        latest = now - self._order.max_wait_s
        if self._order.policy.lanes.weighed:
            yield from self._by_lanes(latest)
            return
        yield from _untaken(self._arrivals, latest)
        for entries in list(self._lanes.values()):
            yield from (sequence for sequence in _untaken(entries, None) if sequence.request.arrival_s > latest)

    def _by_lanes(self, latest: float) -> Iterator[Sequence]:
        """The first sequence of every lane that had none admitted since `latest`, then all, from the lowest lane each time."""
        waits_since = self._order.waits_since
        overdue = [(waits_since(entries[0][2]), lane) for lane, entries in self._lanes.items()]
        for _, lane in sorted(entry for entry in overdue if entry[0] <= latest):
            yield self._lanes[lane][0][2]
        # The key of a lane changes when a sequence of it is admitted, and only upwards: it is asked for again after each.
        key_of = self._order.policy.lanes.next_key
        walks = {lane: _untaken(entries, None) for lane, entries in self._lanes.items()}
        heap = [(key_of(lane), lane) for lane in walks]
        heapify(heap)
        while heap:
            _, lane = heappop(heap)
            sequence = next(walks[lane], None)
            if sequence is not None:
                yield sequence
                heappush(heap, (key_of(lane), lane))


def _untaken(entries: list[_Entry], latest: float | None) -> Iterator[Sequence]:
    """Sequences up to the arrival `latest`; one that is taken out meanwhile makes room for its successor."""
    index = 0
    while index < len(entries):
        entry = entries[index]
        if latest is not None and entry[2].request.arrival_s > latest:
            return
        yield entry[2]
        if index < len(entries) and entries[index] is entry:
            index += 1


def _take(entries: list[_Entry], key: tuple[float, ...], sequence: Sequence) -> None:
    index = bisect_left(entries, (key, sequence.seq_id))
    assert entries[index][2] is sequence
    del entries[index]
