"""Help pages: options grouped by configuration section, examples at the end."""

from __future__ import annotations

from typing import Any

import click

from octavo.config.flags import FlagOption

CONTEXT_SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 110,
    # --max_num_seqs is --max-num-seqs, as in other servers.
    "token_normalize_func": lambda name: name.replace("_", "-"),
}


class Examples:
    """Lines of `command   what it does`, printed as they are."""

    def __init__(self, text: str) -> None:
        self._lines = text.strip().split("\n")

    def write(self, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for line in self._lines:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


class SectionedCommand(click.Command):
    """A command whose --help shows its own options first, then those of each configuration section under its title."""

    def __init__(self, *args: Any, examples: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                groups.setdefault(param.section if isinstance(param, FlagOption) else "Options", []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self._examples:
            Examples(self._examples).write(formatter)
