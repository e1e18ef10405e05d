"""Tables and JSON of a comparison."""

from __future__ import annotations

import json
from pathlib import Path

from comparison.ratios import Metric
from comparison.report import Comparison, number, write_json
from comparison.rounds import OURS, Rounds

SPEED = Metric("tok_s", "prefill", "tok/s")
LATENCY = Metric("ms", "latency", "ms", higher_is_better=False)


def comparison() -> Comparison:
    rounds = Rounds()
    for index, (ours, theirs) in enumerate([(300.0, 100.0), (330.0, 100.0), (200.0, 100.0)]):
        rounds.add(OURS, index, {"tok_s": ours, "ms": 5.0, "own": 1.0})
        rounds.add("peer", index, {"tok_s": theirs})
    rounds.errors.append(("peer", "it ended with status 1\nlong log"))
    return Comparison("a load", (SPEED, LATENCY), rounds, 3, ["a note"])


def test_table_has_medians_ratio_with_spread_notes_and_failures() -> None:
    lines = comparison().table().splitlines()
    assert lines[0] == "a load"
    assert lines[2].split() == ["prefill,", "tok/s", "octavo", "300", "200", "330"]
    assert lines[3].split() == ["peer", "100", "100", "100", "3.00x", "(2.00", "..", "3.30)"]
    assert lines[4].split()[:3] == ["latency,", "ms", "octavo"]
    assert lines[5:] == ["note: a note", "failed: peer: it ended with status 1"]


def test_a_metric_octavo_lacks_still_has_its_title() -> None:
    rounds = Rounds()
    rounds.add("peer", 0, {"tok_s": 2.5})
    row = Comparison("t", (SPEED,), rounds, 1).table().splitlines()[2]
    assert row.split() == ["prefill,", "tok/s", "peer", "2.50", "2.50", "2.50"]


def test_json_keeps_facts_settings_single_rounds_medians_and_ratios(tmp_path: Path) -> None:
    path = tmp_path / "new" / "figures.json"
    write_json(path, {"commit": "abc"}, {"threads": 2}, [comparison()])
    document = json.loads(path.read_text())
    assert (document["commit"], document["settings"]) == ("abc", {"threads": 2})
    stored = document["comparisons"][0]
    assert stored["rounds"][OURS]["tok_s"] == [300.0, 330.0, 200.0]
    assert stored["medians"]["peer"] == {"tok_s": 100.0}
    assert stored["ratios"] == {"peer": {"tok_s": {"median": 3.0, "min": 2.0, "max": 3.3, "count": 3}}}
    assert stored["errors"][0]["message"].endswith("long log")


def test_numbers_have_three_digits() -> None:
    assert [number(value) for value in (1234.5, 12.34, 1.234, 0.012)] == ["1234", "12.3", "1.23", "0.01"]
