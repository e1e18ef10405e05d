"""From a sweep's JSON to the lines of the picture."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from comparison.plot import draw, read_series, require_matplotlib

from octavo.errors import ConfigError

SWEEP = {
    "settings": {"concurrency": [1, 4], "model": "m.gguf"},
    "machine": {"cpu": "A CPU", "cpus": 2},
    "comparisons": [
        {"medians": {"octavo": {"total_tok_s": 100.0}, "peer": {"total_tok_s": None}}},
        {"medians": {"octavo": {"total_tok_s": 300.0}, "peer": {"total_tok_s": 50.0}}},
    ],
}


def test_series_have_a_point_per_concurrency_that_was_measured() -> None:
    assert read_series(SWEEP) == {
        "octavo": {"total_tok_s": [(1, 100.0), (4, 300.0)]},
        "peer": {"total_tok_s": [(4, 50.0)]},
    }


@pytest.mark.parametrize(
    "document", [{}, {"settings": {"concurrency": None}, "comparisons": []}, {"settings": [], "comparisons": 1}]
)
def test_another_json_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="not the JSON of a sweep"):
        read_series(document)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.json"):
        draw(tmp_path / "missing.json", tmp_path / "x.svg")


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is not None, reason="matplotlib is there")
def test_without_matplotlib_the_message_says_how_to_get_it() -> None:
    with pytest.raises(ConfigError, match="pip install"):
        require_matplotlib()


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs matplotlib")
def test_a_sweep_is_drawn(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep.json"
    sweep.write_text(json.dumps(SWEEP))
    draw(sweep, tmp_path / "sweep.svg")
    assert "<svg" in (tmp_path / "sweep.svg").read_text()
