"""vLLM's options on the command line: taken without showing in --help, and settled before the command sees them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from octavo.config.vllm import VLLM_OPTIONS, on_the_command_line, translate
from octavo.config.vllm_table import VllmOption
from octavo.errors import ConfigError

_DOTTED = re.compile(r"--(?P<name>[A-Za-z0-9][\w-]*)\.[\w.-]+(?P<value>=.*)?")


class VllmFlag(click.Option):
    """A hidden option of the command line for one option of vLLM that is no field of octavo's."""

    def __init__(self, option: VllmOption) -> None:
        flag = "--" + option.name.replace("_", "-")
        names = [f"{flag}/--no-{flag[2:]}" if option.switch else flag, *([option.short] if option.short else [])]
        super().__init__([*names, option.name], hidden=True, default=None, type=click.BOOL if option.switch else click.STRING)


def vllm_flags(taken: Iterable[click.Parameter]) -> list[VllmFlag]:
    """One for each option of vLLM whose name none of the parameters has."""
    names = {name for parameter in taken for name in (parameter.name, *parameter.opts)}
    options = [option for option in VLLM_OPTIONS.values() if option.answer != "same"]
    return [VllmFlag(option) for option in options if not {option.name, "--" + option.name.replace("_", "-")} & names]


def without_dots(arguments: Sequence[str]) -> list[str]:
    """`--compilation-config.level 3` as `--compilation-config 3`: vLLM's way into nested settings, of which none is here."""
    changed = []
    for argument in arguments:
        dotted = _DOTTED.fullmatch(argument)
        known = dotted is not None and dotted["name"].replace("-", "_") in VLLM_OPTIONS
        changed.append(f"--{dotted['name']}{dotted['value'] or ''}" if dotted and known else argument)
    return changed


def with_joined_names(arguments: Sequence[str]) -> list[str]:
    """`MODEL --served-model-name a b` as `MODEL --served-model-name a,b`. Where MODEL may still come, the second is it."""
    joined: list[str] = []
    names = False
    for argument in arguments:
        if names and not argument.startswith("-") and not joined[-1].startswith("-"):
            joined[-1] += f",{argument}"
            continue
        names = argument.replace("_", "-") == "--served-model-name" or (names and not argument.startswith("-"))
        joined.append(argument)
    has_model = bool(arguments) and (not arguments[0].startswith("-") or "--model" in arguments)
    return joined if has_model else list(arguments)


def settle(ctx: click.Context) -> None:
    """Take vLLM's options out of the parsed ones: set the fields that they set, print the warnings, or raise ConfigError."""
    hidden = [parameter.name for parameter in ctx.command.params if isinstance(parameter, VllmFlag)]
    given = {name: _plain(ctx.params.pop(name, None)) for name in hidden if name is not None}
    translated = translate({name: value for name, value in given.items() if value is not None}, on_the_command_line)
    for warning in translated.warnings:
        print(f"octavo: warning: {warning}", file=sys.stderr)
    for field, value in translated.values.items():
        if field not in ctx.params:
            raise ConfigError(f"{ctx.command_path} has no --{field.replace('_', '-')}", param=field)
        typed = ctx.get_parameter_source(field) is click.core.ParameterSource.COMMANDLINE
        if typed and ctx.params[field] != value:
            flag = "--" + field.replace("_", "-")
            raise ConfigError(f"{flag} is {ctx.params[field]}, and another option sets it to {value}; give one", param=field)
        ctx.params[field] = value


def _plain(value: Any) -> Any:
    """A number, list or object where the text is one in JSON; the text itself elsewhere."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None if value == "None" else value
