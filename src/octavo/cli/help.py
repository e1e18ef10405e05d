"""Help pages: options grouped by configuration section, examples at the end."""

from __future__ import annotations

from typing import Any

import click

from octavo.cli.config_file import ConfigFileOption
from octavo.cli.vllm_options import settle, vllm_flags, with_joined_names, without_dots
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
    """A command whose --help shows its own options first, then those of each configuration section under its title.

    One with options of the configuration takes them from a --config file, too, and knows vLLM's. An option of its own goes
    before one of the configuration: the --seed of `octavo chat` is that of its answers.
    """

    def __init__(self, *args: Any, examples: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._examples = examples
        if any(isinstance(param, FlagOption) for param in self.params):
            own = {param.name for param in self.params if not isinstance(param, FlagOption)}
            self.params = [param for param in self.params if not (isinstance(param, FlagOption) and param.name in own)]
            self.params.append(ConfigFileOption())
            self.params += vllm_flags(self.params)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, with_joined_names(without_dots(args)))
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # an option without its value says only which option it is
            raise

    def invoke(self, ctx: click.Context) -> Any:
        settle(ctx)
        return super().invoke(ctx)

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
