"""Report: what a run's timings say, as the table and the JSON keys of `vllm bench serve`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from octavo.loadgen.client import Timing
from octavo.loadgen.draft_counts import draft_rows

PERCENTILES = (50, 90, 99)


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear interpolation between closest ranks, as numpy's default. 0.0 for no values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def summarize(timings: Sequence[Timing], duration_s: float) -> dict[str, Any]:
    """Counts, throughputs (per second) and latencies (ms) of a run. Failed requests count only as failed."""
    good = [timing for timing in timings if timing.error is None]
    prompt_tokens = sum(timing.prompt_tokens or timing.prompt_len for timing in good)
    output_tokens = sum(timing.output_tokens or len(timing.token_times) for timing in good)
    summary: dict[str, Any] = {
        "duration": duration_s,
        "completed": len(good),
        "failed": len(timings) - len(good),
        "total_input_tokens": prompt_tokens,
        "total_output_tokens": output_tokens,
        "request_throughput": len(good) / duration_s,
        "output_throughput": output_tokens / duration_s,
        "total_token_throughput": (prompt_tokens + output_tokens) / duration_s,
    }
    latencies: dict[str, list[float]] = {
        "ttft": [timing.ttft_s for timing in good],
        "tpot": [timing.tpot_s for timing in good if timing.tpot_s is not None],
        "itl": [gap for timing in good for gap in timing.gaps_s],
        "e2el": [timing.e2e_s for timing in good],
    }
    for name, values in latencies.items():
        summary.update(latency_keys(name, values))
    summary["errors"] = sorted({timing.error for timing in timings if timing.error is not None})[:10]
    return summary


def latency_keys(name: str, values_s: Sequence[float]) -> dict[str, float]:
    """mean_, median_, std_ and pNN_ keys in milliseconds."""
    keys = {
        f"mean_{name}_ms": statistics.fmean(values_s) * 1e3 if values_s else 0.0,
        f"median_{name}_ms": percentile(values_s, 50) * 1e3,
        f"std_{name}_ms": statistics.pstdev(values_s) * 1e3 if values_s else 0.0,
    }
    return keys | {f"p{percent}_{name}_ms": percentile(values_s, percent) * 1e3 for percent in PERCENTILES}


_TITLES = {
    "ttft": "Time to first token",
    "tpot": "Time per output token (excl. first)",
    "itl": "Inter-token latency",
    "e2el": "End-to-end latency",
}


def table(summary: dict[str, Any]) -> str:
    """The summary as the text table that `bench serve` prints."""
    rows = [
        ("Successful requests", f"{summary['completed']}"),
        ("Failed requests", f"{summary['failed']}"),
        ("Benchmark duration (s)", f"{summary['duration']:.2f}"),
        ("Total input tokens", f"{summary['total_input_tokens']}"),
        ("Total generated tokens", f"{summary['total_output_tokens']}"),
        ("Request throughput (req/s)", f"{summary['request_throughput']:.2f}"),
        ("Output token throughput (tok/s)", f"{summary['output_throughput']:.2f}"),
        ("Total token throughput (tok/s)", f"{summary['total_token_throughput']:.2f}"),
    ]
    lines = [f"{' Serving benchmark result ':=^60}", *(f"{name + ':':<44}{value:>16}" for name, value in rows)]
    for key, title in _TITLES.items():
        lines.append(f"{title:-^60}")
        for prefix in ("mean", "median", *(f"p{percent}" for percent in PERCENTILES[1:])):
            lines.append(f"{f'{prefix.capitalize()} {key.upper()} (ms):':<44}{summary[f'{prefix}_{key}_ms']:>16.2f}")
    drafts = draft_rows(summary)
    if drafts:
        lines += [f"{'Speculative decoding':-^60}", *(f"{name + ':':<44}{value:>16}" for name, value in drafts)]
    return "\n".join([*lines, "=" * 60])
