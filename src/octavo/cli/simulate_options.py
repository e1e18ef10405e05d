"""What simulate and tune share: the trace, the profile, the fleet, the engine's settings, a progress bar, calibration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from octavo.cli.lazy_progress import lazy_pull_progress
from octavo.config.cache import CacheConfig
from octavo.config.flags import config_options, environment, make_engine_config, make_section
from octavo.config.scheduler import SchedulerConfig
from octavo.errors import ConfigError
from octavo.loader.hub import default_cache_dir
from octavo.simulator.fleet import ROUTINGS, FleetSpec
from octavo.simulator.profile import DEFAULT_PROFILE, Profile, default_profile_path, load_profile, save_profile
from octavo.simulator.settings import engine_spec, unsupported_settings
from octavo.simulator.trace import Trace, first, repeated, scaled
from octavo.simulator.trace_file import read_trace

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_COUNT = click.IntRange(1, 2**31 - 1)
_OPTIONS = (
    click.argument("trace", metavar="[TRACE]", required=False),
    click.option("--profile", metavar="FILE", help="What --calibrate measured. Default: round figures of a small model."),
    click.option(
        "--rate-scale", type=click.FloatRange(0, min_open=True), default=1.0, metavar="X", help="Arrivals X times as fast."
    ),
    click.option("--limit", type=_COUNT, metavar="N", help="Only the first N requests."),
    click.option(
        "--replicas", type=click.IntRange(1, 10_000), default=1, show_default=True, metavar="N", help="Engines in the fleet."
    ),
    click.option(
        "--routing", type=click.Choice(ROUTINGS), default=ROUTINGS[0], show_default=True, help="Which replica is next."
    ),
    click.option(
        "--draft-acceptance",
        type=click.FloatRange(0, 1),
        default=0.5,
        show_default=True,
        metavar="P",
        help="Chance of a guess to be right, with --speculative-config.",
    ),
    click.option(
        "--calibrate",
        is_flag=False,
        flag_value="",
        metavar="[MODEL]",
        help="Measure this machine with MODEL (about 20 s), write a profile and end.",
    ),
)


def simulation_options(command: CommandT) -> CommandT:
    """The common options, and those settings of the engine that a simulation follows."""
    command = config_options((CacheConfig, SchedulerConfig), skip=unsupported_settings())(command)
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def open_profile(values: Mapping[str, Any]) -> Profile:
    """The profile of --profile, or the one built in."""
    return DEFAULT_PROFILE if values["profile"] is None else load_profile(Path(values["profile"]))


def open_trace(values: Mapping[str, Any], num_requests: int | None = None) -> Trace:
    """The trace, cut, repeated and sped up as the options say. Raises ConfigError, also without a trace."""
    if values["trace"] is None:
        raise ConfigError("give a TRACE (CSV or JSONL), or --calibrate", param="trace")
    trace = read_trace(Path(values["trace"]), values["limit"])
    if num_requests is not None:
        trace = repeated(trace, num_requests)
    elif values["limit"] is not None:
        trace = first(trace, values["limit"])
    return scaled(trace, values["rate_scale"])


def fleet_spec(values: Mapping[str, Any], profile: Profile, **more: Any) -> FleetSpec:
    """Replicas and routing around the engine that the options describe. Raises ConfigError naming the flag."""
    cache, scheduler = make_section(CacheConfig, values), make_section(SchedulerConfig, values)
    engine = engine_spec(cache, scheduler, profile, values["draft_acceptance"])
    return FleetSpec(engine=engine, num_replicas=values["replicas"], routing=values["routing"], **more)


def run_calibration(values: Mapping[str, Any]) -> None:
    """Measure, print, save."""
    # The engine is imported here: a simulation needs no native core.
    from octavo.engine.frontend.served_model import locate_model
    from octavo.simulator.calibrate import calibrate

    if values["trace"] is not None:
        raise ConfigError("--calibrate measures and ends; run it without a TRACE", param="calibrate")
    config = make_engine_config({"model": values["calibrate"]} if values["calibrate"] else {})
    with lazy_pull_progress() as progress:
        config = locate_model(config, progress)
    with progress_bar("measuring") as on_progress:
        profile = calibrate(config, on_progress)
    cache_dir = default_cache_dir(environment())
    if values["profile"]:
        path = Path(values["profile"])
    elif cache_dir is not None:
        path = default_profile_path(cache_dir, profile)
    else:
        raise ConfigError("--profile FILE must say where to write: there is no home folder", param="profile")
    save_profile(path, profile)
    print(profile.describe())
    print(f"written  {path}")


@contextmanager
def progress_bar(description: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr; yields the function that is told (done, in all)."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(description)

        def on_progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield on_progress
