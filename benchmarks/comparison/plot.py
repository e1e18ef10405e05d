"""A sweep as a picture: throughput and latency over concurrency, one line per contestant. Needs matplotlib."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from octavo.errors import ConfigError

PANELS = (
    ("total_tok_s", "input + output tokens/s"),
    ("output_tok_s", "output tokens/s"),
    ("ttft_p50_ms", "time to first token, p50, ms"),
    ("itl_p99_ms", "inter-token latency, p99, ms"),
)

Series = dict[str, dict[str, list[tuple[int, float]]]]
"""series[contestant][metric key] = [(concurrency, median), ...]"""


def read_series(document: dict[str, Any]) -> Series:
    """The medians of a sweep's JSON, which may have ended early. Raises ConfigError if the document is not a sweep."""
    try:
        levels = document["settings"]["concurrency"]
        comparisons = document["comparisons"]
        series: Series = {}
        for level, comparison in zip(levels, comparisons, strict=False):
            for name, medians in comparison["medians"].items():
                for key, value in medians.items():
                    if value is not None:
                        series.setdefault(name, {}).setdefault(key, []).append((int(level), float(value)))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"the file is not the JSON of a sweep ({error!r})") from None
    return series


def require_matplotlib() -> Any:
    """matplotlib.pyplot, drawing to files only. Raises ConfigError that says how to get it."""
    try:
        import_module("matplotlib").use("Agg")
    except ModuleNotFoundError:
        raise ConfigError('plots need matplotlib: pip install "octavo[plot]", or pip install matplotlib') from None
    return import_module("matplotlib.pyplot")


def draw(sweep: Path, picture: Path) -> None:
    """Draw the sweep stored in a JSON file; the picture's suffix (.svg, .png) chooses its format."""
    try:
        document = json.loads(sweep.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{sweep}: {error}") from None
    series = read_series(document)
    pyplot = require_matplotlib()
    figure, axes = pyplot.subplots(2, 2, figsize=(10, 7), constrained_layout=True)
    for axis, (key, title) in zip(axes.flat, PANELS, strict=True):
        for name, metrics in series.items():
            points = metrics.get(key, [])
            if points:
                axis.plot([x for x, _ in points], [y for _, y in points], marker="o", markersize=4, label=name)
        axis.set_xscale("log", base=2)
        levels = document["settings"]["concurrency"]
        axis.set_xticks(levels, [str(level) for level in levels])
        if key.endswith("_ms"):
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
        axis.set_xlabel("requests at once")
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
    axes.flat[0].legend(fontsize=8)
    machine = document.get("machine", {})
    figure.suptitle(
        f"{document['settings'].get('model', '')}, {machine.get('cpus', '?')} cores of {machine.get('cpu', '?')}", fontsize=11
    )
    figure.savefig(picture, dpi=150)
    pyplot.close(figure)
