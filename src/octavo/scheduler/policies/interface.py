"""Policy: the order of the waiting queue and the choice of who gives way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from octavo.sequence import Sequence


class Policy(Protocol):
    """A policy is stateless towards the scheduler: it only ranks. Every policy states its starvation bound in its docstring."""

    def key(self, sequence: Sequence) -> tuple[float, ...]:
        """Rank in the waiting queue, smallest first. Must not change while a sequence waits; ties go by seq_id."""

    def victim(self, running: Iterable[Sequence]) -> Sequence:
        """Which of the running sequences (at least one) is preempted when the pool has no block left."""
