"""WorkerMemory: which sequences the worker knows, and which of them it is to be told to forget."""

from __future__ import annotations

from collections.abc import Set


class WorkerMemory:
    """Follows what plans have told the worker."""

    __slots__ = ("_known", "_removed")

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._removed: list[int] = []

    @property
    def known(self) -> Set[int]:
        return self._known

    def learn(self, seq_id: int) -> None:
        """The plan in the making tells the worker of this sequence."""
        self._known.add(seq_id)

    def forget(self, seq_id: int) -> None:
        """It has ended, or lost its blocks."""
        if seq_id in self._known:
            self._known.discard(seq_id)
            self._removed.append(seq_id)

    def take_removed(self) -> list[int]:
        """Ids for the next plan to remove."""
        removed, self._removed = self._removed, []
        return removed

    def put_back(self, removed: list[int]) -> None:
        """The plan that was to remove these failed; the next one has to."""
        self._removed = removed + self._removed
