"""add_options: the options of EngineArgs for a program's own argparse parser, and what was parsed, as in vLLM's examples."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from typing import Any

from octavo.config.flags import Flag
from octavo.config.vllm import VLLM_OPTIONS, fields_by_name
from octavo.config.vllm_table import VllmOption
from octavo.errors import ConfigError


def add_options(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """An option for each of these fields, and for each option of vLLM that is none of octavo's; --a-b is also --a_b."""
    flags = fields_by_name()
    group = parser.add_argument_group("engine")
    for name in names:
        flag = flags[name]
        _add(group, name, flag.kind is bool, flag.help, default=flag.default, type=_checked(flag))
    taken = {name for flag in flags.values() for name in (flag.name, *flag.aliases)}
    for option in VLLM_OPTIONS.values():
        if option.name not in taken:
            _add(group, option.name, option.switch, argparse.SUPPRESS, short=option.short, default=None, type=_plain)


def parsed_options(namespace: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """What the namespace says of these fields and of vLLM's options; other attributes belong to the program."""
    known = [*names, *(option.name for option in VLLM_OPTIONS.values() if _is_foreign(option))]
    return {name: getattr(namespace, name) for name in known if getattr(namespace, name, None) is not None}


def _is_foreign(option: VllmOption) -> bool:
    return option.name not in fields_by_name()


def _add(
    group: argparse._ArgumentGroup, name: str, is_switch: bool, text: str, *, short: str | None = None, **more: Any
) -> None:
    spellings = list(dict.fromkeys([f"--{name.replace('_', '-')}", f"--{name}"]))
    if text is not argparse.SUPPRESS:
        text = text.replace("%", "%%")
    if is_switch:
        more.pop("type")
        group.add_argument(*spellings, dest=name, help=text, action=argparse.BooleanOptionalAction, **more)
    else:
        group.add_argument(*([short] if short else []), *spellings, dest=name, help=text, **more)


def _checked(flag: Flag) -> Callable[[str], Any]:
    def check(text: str) -> Any:
        try:
            return flag.check(text)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(error.message) from None

    return check


def _plain(text: str) -> Any:
    """A number, list or object where the text is one in JSON; the text itself elsewhere."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None if text == "None" else text
