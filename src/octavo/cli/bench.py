"""octavo bench: the group of measuring commands; one file per measurement."""

from __future__ import annotations

import click

from octavo.cli.help import CONTEXT_SETTINGS
from octavo.cli.lazy_group import LazyGroup

COMMANDS = {
    "latency": ("octavo.cli.bench_latency:latency", "Time one batch from start to end, several times."),
    "throughput": ("octavo.cli.bench_throughput:throughput", "Tokens per second over many prompts, offline."),
    "kernels": ("octavo.cli.bench_kernels:kernels", "Time single steps and hold their products against the machine's limits."),
    "serve": ("octavo.cli.bench_serve:serve", "Load a running server and report TTFT, ITL, TPOT and throughput."),
}


@click.group(cls=LazyGroup, table=COMMANDS, context_settings=CONTEXT_SETTINGS)
def bench() -> None:
    """Measure. Names and outputs are those of `vllm bench`."""
