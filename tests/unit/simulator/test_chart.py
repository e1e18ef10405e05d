"""The terminal chart, and the image where matplotlib is installed."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from tests.unit.simulator.traces import COST, engine, random_trace

from octavo.errors import ConfigError
from octavo.simulator.chart import chart, load_matplotlib, plot
from octavo.simulator.fleet import FleetSpec, simulate

SPEC = FleetSpec(engine=engine())


def test_chart_has_a_line_per_curve_of_one_width() -> None:
    lines = chart(SPEC, simulate(random_trace(1), SPEC, COST)).split("\n")
    assert [line.partition("|")[0].strip() for line in lines[:4]] == [
        "running sequences",
        "waiting requests",
        "KV cache used (%)",
        "output tokens/s",
    ]
    assert len({len(line.rpartition("|")[0]) for line in lines[:4]}) == 1 and "█" in lines[0]


def test_plot_needs_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("octavo.simulator.chart.import_module", missing)
    with pytest.raises(ConfigError, match="--plot needs matplotlib: pip install matplotlib"):
        load_matplotlib()


def test_plot_writes_an_image(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    recorder = simulate(random_trace(1), SPEC, COST)
    plot(importlib.import_module("matplotlib.figure"), tmp_path / "run.png", SPEC, recorder)
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
