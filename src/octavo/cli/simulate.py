"""octavo simulate: what a load would do to an engine, or to a fleet of them, without running a model."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import msgspec

from octavo.cli.help import CONTEXT_SETTINGS, SectionedCommand
from octavo.cli.simulate_options import (
    fleet_spec,
    open_profile,
    open_trace,
    progress_bar,
    run_calibration,
    simulation_options,
)
from octavo.simulator.chart import chart, load_matplotlib, plot
from octavo.simulator.fleet import simulate as run_simulation
from octavo.simulator.settings import describe_engine
from octavo.simulator.summary import summarize, table

EXAMPLES = """
octavo simulate --calibrate                                 measure this machine with the embedded model
octavo simulate trace.csv --profile machine.json            would this machine carry that load?
octavo simulate trace.csv --replicas 8 --routing least-loaded --rate-scale 4
octavo simulate trace.jsonl --num-requests 10000            the trace again and again
"""


@click.command(cls=SectionedCommand, context_settings=CONTEXT_SETTINGS, examples=EXAMPLES)
@simulation_options
@click.option(
    "--num-requests", type=click.IntRange(1, 10**8), metavar="N", help="Send N requests: the trace again and again, or cut."
)
@click.option("--max-concurrency", type=click.IntRange(1), metavar="N", help="Most requests under way; others are held back.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--plot", "plot_file", metavar="FILE.png", help="Draw the run to FILE.png (needs matplotlib).")
def simulate(
    num_requests: int | None, max_concurrency: int | None, as_json: bool, plot_file: str | None, **values: Any
) -> None:
    """Run the real scheduler and block pool over TRACE under a virtual clock, and report what clients would see.

    TRACE is a CSV (with header) or JSONL file with the columns arrival (seconds), input_tokens, output_tokens, and optionally
    tenant, priority, prefix_id, prefix_tokens. The columns of the public Azure, Mooncake, ServeGen and BurstGPT traces are
    known.
    """
    if values["calibrate"] is not None:
        run_calibration(values)
        return
    matplotlib = load_matplotlib() if plot_file is not None else None
    profile = open_profile(values)
    spec = fleet_spec(values, profile, max_concurrency=max_concurrency)
    trace = open_trace(values, num_requests)
    if not as_json:
        fleet = f"fleet    {spec.num_replicas} replicas, {spec.routing}\n" if spec.num_replicas > 1 else ""
        print(f"trace    {trace.describe()}\nprofile  {profile.name}\n{describe_engine(spec.engine)}\n{fleet}")
    start_s = time.perf_counter()
    with progress_bar("requests") as on_progress:
        recorder = run_simulation(trace, spec, profile.cost, lambda done: on_progress(done, len(trace)))
    took_s = time.perf_counter() - start_s
    summary = summarize(trace, spec, recorder)
    if matplotlib is not None and plot_file is not None:
        plot(matplotlib, Path(plot_file), spec, recorder)
    if as_json:
        figures = {"trace": trace.name, "profile": profile.name, "wall_s": took_s, **asdict(summary)}
        print(msgspec.json.format(msgspec.json.encode(figures), indent=2).decode())
        return
    print(table(summary))
    print(f"\n{chart(spec, recorder)}\n" if plot_file is None else f"\nplot written to {plot_file}\n")
    print(f"simulated in {took_s:.1f} s, {len(trace) / took_s:.0f} requests/s")
