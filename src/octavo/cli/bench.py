"""octavo bench: the group of measuring commands; one file per measurement."""

from __future__ import annotations

from importlib import import_module

import click

from octavo.cli.help import CONTEXT_SETTINGS

COMMANDS = {
    "latency": ("octavo.cli.bench_latency:latency", "Time one batch from start to end, several times."),
    "throughput": ("octavo.cli.bench_throughput:throughput", "Tokens per second over many prompts, offline."),
    "kernels": ("octavo.cli.bench_kernels:kernels", "Time single steps and hold their products against the machine's limits."),
    "serve": ("octavo.cli.bench_serve:serve", "Load a running server and report TTFT, ITL, TPOT and throughput."),
}


class BenchGroup(click.Group):
    """Imports a measurement when it is asked for: `serve` needs no engine, the others no HTTP client."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in COMMANDS.items()])


@click.group(cls=BenchGroup, context_settings=CONTEXT_SETTINGS)
def bench() -> None:
    """Measure. Names and outputs are those of `vllm bench`."""
