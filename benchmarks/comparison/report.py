"""Comparison: what a mode gives; printed as a table, stored as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from comparison.ratios import Metric, Spread, ratio_spread, spread
from comparison.rounds import OURS, Rounds


@dataclass(slots=True)
class Comparison:
    """The rounds of one load. `title` says which load; `notes` are printed under the table."""

    title: str
    metrics: tuple[Metric, ...]
    rounds: Rounds
    num_rounds: int
    notes: list[str] = field(default_factory=list)

    def median(self, name: str, key: str) -> float | None:
        found = spread(self.rounds.values(name, key, self.num_rounds))
        return None if found is None else found.median

    def ratio(self, name: str, metric: Metric) -> Spread | None:
        """octavo against a peer; above 1 octavo is ahead."""
        ours = self.rounds.values(OURS, metric.key, self.num_rounds)
        return ratio_spread(ours, self.rounds.values(name, metric.key, self.num_rounds), metric)

    def as_dict(self) -> dict[str, object]:
        names = list(self.rounds.figures)
        ratios: dict[str, dict[str, dict[str, float]]] = {}
        for name in names:
            if name == OURS:
                continue
            found = {metric.key: self.ratio(name, metric) for metric in self.metrics}
            ratios[name] = {key: value.as_dict() for key, value in found.items() if value is not None}
        return {
            "title": self.title,
            "medians": {name: {key: self.median(name, key) for key in self.rounds.figures[name]} for name in names},
            "ratios": ratios,
            "rounds": self.rounds.figures,
            "errors": [{"contestant": name, "message": message} for name, message in self.rounds.errors],
            "notes": self.notes,
        }

    def table(self) -> str:
        """One line per metric and contestant: median [min .. max], and octavo's ratio over the peer."""
        lines = [self.title, f"{'':<34}{'contestant':<22}{'median':>10}{'min':>10}{'max':>10}   octavo ahead by"]
        for metric in self.metrics:
            head = f"{metric.title}, {metric.unit}"
            for name in self.rounds.figures:
                found = spread(self.rounds.values(name, metric.key, self.num_rounds))
                if found is None:
                    continue
                numbers = "".join(f"{number(value):>10}" for value in (found.median, found.low, found.high))
                lines.append(f"{head:<34}{name:<22}{numbers}   {self._ratio_text(name, metric)}".rstrip())
                head = ""
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"failed: {name}: {first_line(message)}" for name, message in self.rounds.errors]
        return "\n".join(lines)

    def _ratio_text(self, name: str, metric: Metric) -> str:
        ratio = None if name == OURS else self.ratio(name, metric)
        return "" if ratio is None else f"{ratio.median:.2f}x  ({ratio.low:.2f} .. {ratio.high:.2f})"


def first_line(message: str) -> str:
    """An error in a table's width; the rest was printed when it happened and is in the JSON."""
    return message.partition("\n")[0][:200]


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def write_json(path: Path, facts: dict[str, object], settings: dict[str, object], comparisons: Sequence[Comparison]) -> None:
    """Facts, settings, and every comparison with its single rounds."""
    document = {**facts, "settings": settings, "comparisons": [comparison.as_dict() for comparison in comparisons]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
