"""LazyGroup: a group of commands that are imported when they are called, so that help and mistakes answer at once."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from octavo.cli.help import Examples
from octavo.errors import did_you_mean


class LazyGroup(click.Group):
    """A group over a table of commands.

    table      name -> ("module:command", its line in the help); the line stands here so that the help imports no command
    examples   lines for the end of the help
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], examples: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = table
        self._examples = examples

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        module, _, attribute = self._table[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self._table and not args[0].startswith("-"):
            raise click.UsageError(f"no command {args[0]!r}{did_you_mean(args[0], self._table)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in self._table.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self._examples:
            Examples(self._examples).write(formatter)
