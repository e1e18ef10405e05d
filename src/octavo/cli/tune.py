"""octavo tune: which settings carry a load best."""

from __future__ import annotations

from dataclasses import asdict
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
from octavo.simulator.replica import EngineSpec
from octavo.tuner.search import GOALS, Bounds, Search, Trial

DEFAULT_LIMIT = 1000

EXAMPLES = """
octavo tune trace.csv --itl-p99 50 --ttft-p90 2         most tokens per second with answers that flow
octavo tune trace.csv --goal latency --rate-scale 0.5   shortest answers at half the trace's rate
octavo tune --calibrate                                 measure this machine first
"""


@click.command(cls=SectionedCommand, context_settings=CONTEXT_SETTINGS, examples=EXAMPLES)
@simulation_options
@click.option("--goal", type=click.Choice(GOALS), default=GOALS[0], show_default=True, help="What is to be best.")
@click.option("--itl-p99", type=click.FloatRange(0, min_open=True), metavar="MS", help="Bound on the p99 of ITL, in ms.")
@click.option("--ttft-p90", type=click.FloatRange(0, min_open=True), metavar="S", help="Bound on the p90 of TTFT, in seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def tune(goal: str, itl_p99: float | None, ttft_p90: float | None, as_json: bool, **values: Any) -> None:
    """Search the settings of the scheduler and of the KV cache by simulating TRACE, and print the flags to use.

    With bounds, the goal throughput looks for the highest rate of arrivals at which they hold. The search starts from the flags
    given here. TRACE is read as by octavo simulate; the first 1000 requests of it, or --limit of them.
    """
    if values["calibrate"] is not None:
        run_calibration(values)
        return
    profile = open_profile(values)
    fleet = fleet_spec(values, profile)
    trace = open_trace({**values, "limit": values["limit"] or DEFAULT_LIMIT})
    bounds = Bounds(itl_p99_s=itl_p99 / 1e3 if itl_p99 is not None else None, ttft_p90_s=ttft_p90)
    search = Search(trace, fleet, profile.cost, bounds, goal)
    if not as_json:
        print(f"trace    {trace.describe()}\nprofile  {profile.name}\n")
    with progress_bar("settings") as on_progress:
        start, best = search.run(on_progress)
    if as_json:
        figures = {"flags": flags_of(best.engine), "start": _record(start), "best": _record(best)}
        print(msgspec.json.format(msgspec.json.encode(figures), indent=2).decode())
        return
    print(comparison(start, best))
    if not best.holds:
        print("\nNo settings were found that keep the bounds; these come closest:")
    print(f"\n{flags_of(best.engine)}")


def flags_of(engine: EngineSpec) -> str:
    """The searched settings as flags of octavo serve."""
    scheduler = engine.scheduler
    return (
        f"--max-num-seqs {scheduler.max_num_seqs} --max-num-batched-tokens {scheduler.max_num_batched_tokens} "
        f"--chunked-prefill-size {scheduler.chunked_prefill_size} --block-size {engine.block_size} "
        f"--scheduler-policy {scheduler.scheduler_policy}"
    )


def comparison(start: Trial, best: Trial) -> str:
    """The start and the best side by side."""
    rows = [("", "start", "best")]
    for name in ("max_num_seqs", "max_num_batched_tokens", "chunked_prefill_size", "scheduler_policy"):
        pair = [str(getattr(trial.engine.scheduler, name)) for trial in (start, best)]
        rows.append((name, pair[0], pair[1]))
    rows.append(("block_size", str(start.engine.block_size), str(best.engine.block_size)))
    figures = [_figures(trial) for trial in (start, best)]
    rows += [(name, figures[0][name], figures[1][name]) for name in figures[0]]
    return "\n".join(f"{name:<28}{left:>14}{right:>14}" for name, left, right in rows)


def _figures(trial: Trial) -> dict[str, str]:
    summary = trial.summary
    return {
        "bounds hold": "yes" if trial.holds else "no",
        "rate, times the trace's": f"{trial.rate_scale:.3g}",
        "requests/s": f"{summary.requests_per_s:.3g}",
        "output tokens/s": f"{summary.output_tokens_per_s:.1f}",
        "TTFT p90 (s)": f"{summary.ttft_s.p90:.3f}",
        "ITL p99 (ms)": f"{summary.itl_s.p99 * 1e3:.1f}",
        "E2E mean (s)": f"{summary.e2e_s.mean:.3f}",
        "preemptions": f"{summary.num_preemptions}",
    }


def _record(trial: Trial) -> dict[str, Any]:
    scheduler = trial.engine.scheduler
    return {
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "chunked_prefill_size": scheduler.chunked_prefill_size,
        "scheduler_policy": scheduler.scheduler_policy,
        "block_size": trial.engine.block_size,
        "rate_scale": trial.rate_scale,
        "bounds_hold": trial.holds,
        "summary": asdict(trial.summary),
    }
