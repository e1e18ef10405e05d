"""The table that --profile prints: where the time of the steps went, and how near the machine's limits that was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from octavo.ops.cpu.limits import Limits
from octavo.ops.phase_cost import PhaseCost


def profile_rows(costs: Sequence[PhaseCost], limits: Limits) -> list[dict[str, Any]]:
    """One dict per kind of phase, dearest first; `share_of_limit` is the larger of its arithmetic and its memory share."""
    total_s = sum(cost.seconds for cost in costs)
    rows = []
    for cost in sorted(costs, key=lambda cost: -cost.seconds):
        macs_per_s, bytes_per_s = cost.macs / max(cost.seconds, 1e-12), cost.bytes / max(cost.seconds, 1e-12)
        share = max(macs_per_s / limits.macs_per_s(cost.label), bytes_per_s / limits.read_bytes_per_s)
        rows.append(
            {
                "label": cost.label,
                "runs": cost.runs,
                "seconds": cost.seconds,
                "share": cost.seconds / total_s if total_s else 0.0,
                "macs_per_s": macs_per_s,
                "bytes_per_s": bytes_per_s,
                "share_of_limit": share if cost.macs else None,
            }
        )
    return rows


def print_profile(costs: Sequence[PhaseCost], limits: Limits, wall_s: float) -> list[dict[str, Any]]:
    """Print the table to stdout and return its rows. wall_s: seconds of the profiled runs, everything included."""
    rows = profile_rows(costs, limits)
    table = Table(title="Where the time went", title_justify="left")
    table.add_column("phase")
    for name in ("runs", "ms", "share", "GMAC/s", "GB/s", "of limit"):
        table.add_column(name, justify="right")
    for row in rows:
        limit = "" if row["share_of_limit"] is None else f"{row['share_of_limit']:.0%}"
        rate = f"{row['macs_per_s'] / 1e9:.1f}" if row["share_of_limit"] is not None else ""
        memory = f"{row['bytes_per_s'] / 1e9:.1f}" if row["share_of_limit"] is not None else ""
        table.add_row(row["label"], str(row["runs"]), f"{1e3 * row['seconds']:.1f}", f"{row['share']:.1%}", rate, memory, limit)
    Console().print(table)
    tape_s = sum(cost.seconds for cost in costs)
    print(
        f"In the tape: {tape_s:.3f} s of {wall_s:.3f} s; outside it (schedule, batch, sampling, text): "
        f"{max(0.0, 1 - tape_s / wall_s):.1%}"
    )
    print(
        f"Limits measured now: {limits.read_bytes_per_s / 1e9:.1f} GB/s read, {limits.fma_macs_per_s / 1e9:.0f} float and "
        f"{limits.int8_macs_per_s / 1e9:.0f} int8 GMAC/s on {limits.num_threads} threads ({limits.isa})"
    )
    return rows
