"""Rounds: contestants take turns, A B C A B C ..., and what each round gave is kept."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from comparison.processes import PeerError
from comparison.ratios import Value
from octavo.errors import OctavoError

OURS = "octavo"
"""The name of the contestant all ratios are taken against."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """Someone to measure: `measure(round)` gives figures by metric key, or raises PeerError or OctavoError."""

    name: str
    measure: Callable[[int], Mapping[str, float]]


@dataclass(slots=True)
class Rounds:
    """figures[contestant][metric key] has one value per round; errors are (contestant, message)."""

    figures: dict[str, dict[str, list[Value]]] = field(default_factory=dict)
    errors: list[tuple[str, str]] = field(default_factory=list)

    def add(self, name: str, index: int, measured: Mapping[str, float]) -> None:
        """Note round `index` of a contestant; metrics it did not have before are None in earlier rounds."""
        mine = self.figures.setdefault(name, {})
        for key, value in measured.items():
            values = mine.setdefault(key, [])
            values += [None] * (index - len(values))
            values.append(value)

    def values(self, name: str, key: str, num_rounds: int) -> list[Value]:
        """One entry per round; None where the contestant failed or lacks the metric."""
        values = self.figures.get(name, {}).get(key, [])
        return values + [None] * (num_rounds - len(values))


def alternate(contestants: Sequence[Contestant], num_rounds: int) -> Rounds:
    """Measure everybody `num_rounds` times, in turns. A contestant's failure is noted; the others go on."""
    rounds = Rounds()
    for index in range(num_rounds):
        for contestant in contestants:
            start_s = time.perf_counter()
            try:
                measured = contestant.measure(index)
            except (PeerError, OctavoError) as error:
                rounds.errors.append((contestant.name, str(error)))
                print(f"round {index + 1}/{num_rounds}  {contestant.name}  failed: {error}", file=sys.stderr, flush=True)
                continue
            rounds.add(contestant.name, index, measured)
            shown = "  ".join(f"{key}={value:.4g}" for key, value in measured.items())
            seconds = time.perf_counter() - start_s
            print(f"round {index + 1}/{num_rounds}  {contestant.name}  {shown}  ({seconds:.0f} s)", file=sys.stderr, flush=True)
    return rounds
