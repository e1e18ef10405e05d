"""option(): a configuration field that carries its own help text, bounds and choices.

Flags, environment names (OCTAVO_<FIELD>) and the table in docs/configuration.md are generated from these fields, so they cannot
drift apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any


def option(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str | int, ...] = (),
    metavar: str | None = None,
    aliases: tuple[str, ...] = (),
    synonyms: Mapping[Any, Any] | None = None,
    human: bool = False,
) -> Any:
    """A dataclass field with metadata for flags: help text, inclusive bounds, allowed words, placeholder, other flag names.

    synonyms  other spellings of a value -> the value; None: the default
    human     a whole number may be written as 2k or 2K, see human_int
    """
    return field(
        default=default,
        metadata={
            "help": help,
            "low": low,
            "high": high,
            "choices": choices,
            "metavar": metavar,
            "aliases": aliases,
            "synonyms": synonyms or {},
            "human": human,
        },
    )
