"""chart: a simulation over time in a terminal; plot: the same as a PNG, with matplotlib."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from octavo.errors import ConfigError
from octavo.simulator.fleet import FleetSpec
from octavo.simulator.recorder import Recorder

F64 = NDArray[np.float64]
_LEVELS = " ▁▂▃▄▅▆▇█"
_WIDTH = 72


def curves(spec: FleetSpec, recorder: Recorder) -> tuple[F64, dict[str, F64]]:
    """(times in seconds, values by title), all [num_bins]."""
    series = recorder.timeline.series(recorder.end_s)
    all_blocks = spec.engine.num_blocks * spec.num_replicas
    return series.time_s, {
        "running sequences": series.running,
        "waiting requests": series.waiting,
        "KV cache used (%)": 100.0 * series.used_blocks / all_blocks,
        "output tokens/s": series.output_tokens_per_s,
    }


def chart(spec: FleetSpec, recorder: Recorder) -> str:
    """One bar chart of one line per curve, each from zero to its own maximum."""
    _, values = curves(spec, recorder)
    lines = []
    for title, curve in values.items():
        bars = _resampled(curve, _WIDTH)
        top = float(bars.max())
        steps = np.ceil(bars / top * (len(_LEVELS) - 1)).astype(int) if top > 0 else np.zeros(len(bars), dtype=int)
        lines.append(f"{title:<20}|{''.join(_LEVELS[step] for step in steps):<{_WIDTH}}| {top:.4g}")
    return "\n".join([*lines, f"{'':<20} 0 s{recorder.end_s:>{_WIDTH - 5}.0f} s"])


def load_matplotlib() -> ModuleType:
    """matplotlib.figure, so that a long simulation is not begun in vain. Raises ConfigError when it is not installed."""
    try:
        return import_module("matplotlib.figure")
    except ImportError:
        raise ConfigError(
            "--plot needs matplotlib: pip install matplotlib. Without --plot a chart is printed", param="plot"
        ) from None


def plot(matplotlib: ModuleType, path: Path, spec: FleetSpec, recorder: Recorder) -> None:
    """The curves, and the distributions of TTFT and E2E, as an image. Raises ConfigError when it cannot be written."""
    figure = matplotlib.Figure(figsize=(11, 9), layout="constrained")
    axes = figure.subplots(3, 2)
    time_s, values = curves(spec, recorder)
    for axis, (title, curve) in zip(axes.flat, values.items(), strict=False):
        axis.fill_between(time_s, curve, step="post", alpha=0.6)
        axis.set(title=title, xlabel="s", ylim=(0, None))
    arrival_s = np.asarray(recorder.arrival_s)
    for axis, title, end_s in ((axes[2, 0], "TTFT", recorder.first_token_s), (axes[2, 1], "E2E", recorder.finish_s)):
        latency_s = np.sort(np.asarray(end_s) - arrival_s)
        latency_s = latency_s[~np.isnan(latency_s)]
        axis.plot(latency_s, np.linspace(0, 100, len(latency_s)))
        axis.set(title=f"{title} (s), percent of requests below", xlabel="s", ylim=(0, 100))
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--plot {path}: {error}", param="plot") from None


def _resampled(curve: F64, width: int) -> F64:
    """At most `width` bins: means of runs of bins."""
    if len(curve) <= width:
        return curve
    edges = np.linspace(0, len(curve), width + 1).astype(int)
    sums: F64 = np.add.reduceat(curve, edges[:-1])
    means: F64 = sums / np.diff(edges)
    return means
