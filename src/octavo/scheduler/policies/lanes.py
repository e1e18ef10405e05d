"""OneLane: for policies that weigh no groups against each other."""

from __future__ import annotations

import math
from collections.abc import Iterable

from octavo.sequence import Sequence


class OneLane:
    """All sequences stand in one lane, and nobody counts what they are given."""

    weighed = False

    def of(self, sequence: Sequence) -> str:
        return ""

    def key(self, lane: str) -> float:
        return 0.0

    def next_key(self, lane: str) -> float:
        return 0.0

    def opens(self, lane: str, others: Iterable[str]) -> None:
        """Nothing to note."""

    def closes(self, lane: str) -> None:
        """Nothing to note."""

    def last_admission_s(self, lane: str) -> float:
        return -math.inf

    def admitted(self, sequence: Sequence, now: float) -> None:
        """Nothing to note."""

    def served(self, sequence: Sequence, num_output: int) -> None:
        """Nothing to note."""
