"""Deadlines: which sequences have run out of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from octavo.sequence import FinishReason, Sequence, SequenceState

_MIN_SWEEP = 64


class Deadlines:
    """A heap of moments at which a live sequence may have to end.

    TIMEOUT  the request's own deadline, in whatever state the sequence is
    SHED     the queue timeout: no step has touched the request until then. Of several choices the first one speaks for all
    """

    def __init__(self, queue_timeout_s: float | None) -> None:
        self._queue_timeout_s = queue_timeout_s
        self._heap: list[tuple[float, int, FinishReason, Sequence]] = []
        self._sweep_at = _MIN_SWEEP

    def add(self, sequence: Sequence) -> None:
        """Watch a new sequence."""
        if sequence.request.deadline_s is not None:
            self._push(sequence.request.deadline_s, FinishReason.TIMEOUT, sequence)
        self._add_queue_timeout(sequence)

    def set_queue_timeout(self, queue_timeout_s: float | None, sequences: Iterable[Sequence]) -> None:
        """Another queue timeout, also for the live sequences, counted from their arrival as if it had always been this one."""
        if queue_timeout_s == self._queue_timeout_s:
            return
        self._queue_timeout_s = queue_timeout_s
        self._heap = [entry for entry in self._heap if entry[2] is not FinishReason.SHED]
        heapify(self._heap)
        for sequence in sequences:
            if sequence.first_scheduled_s is None:
                self._add_queue_timeout(sequence)

    def expired(self, now: float) -> Iterator[tuple[Sequence, FinishReason]]:
        """Live sequences whose time is over, each of them once for each reason it has."""
        while self._heap and self._heap[0][0] <= now:
            _, _, reason, sequence = heappop(self._heap)
            if _is_live(sequence, reason):
                yield sequence, reason

    def _add_queue_timeout(self, sequence: Sequence) -> None:
        if self._queue_timeout_s is not None and sequence.choice == 0:
            self._push(sequence.request.arrival_s + self._queue_timeout_s, FinishReason.SHED, sequence)

    def _push(self, at_s: float, reason: FinishReason, sequence: Sequence) -> None:
        heap = self._heap
        # Two entries of one sequence and moment differ in their reason, which does not compare: TIMEOUT gets the later place.
        heappush(heap, (at_s, 2 * sequence.seq_id + (reason is FinishReason.TIMEOUT), reason, sequence))
        if len(heap) >= self._sweep_at:
            # Ended sequences stay until their moment comes; with long deadlines that would be a leak.
            self._heap = [entry for entry in heap if _is_live(entry[3], entry[2])]
            heapify(self._heap)
            self._sweep_at = max(_MIN_SWEEP, 2 * len(self._heap))


def _is_live(sequence: Sequence, reason: FinishReason) -> bool:
    if sequence.state is SequenceState.FINISHED:
        return False
    return reason is FinishReason.TIMEOUT or sequence.first_scheduled_s is None
