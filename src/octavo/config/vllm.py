"""translate: options by vLLM's names become octavo's fields, a warning, or a refusal that says what to use instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from octavo.config.flags import Flag, all_flags
from octavo.config.vllm_table import TABLE, VllmOption
from octavo.errors import ConfigError, did_you_mean

VLLM_OPTIONS: dict[str, VllmOption] = {option.name: option for section in TABLE.values() for option in section}

Spelling = Callable[[str, Any], str]
"""An option's name and value as they are written; the name alone for the value None."""


@dataclass(frozen=True, slots=True)
class Translated:
    """values: octavo's field -> value, where one was given. warnings: one sentence per option that has no effect."""

    values: dict[str, Any]
    warnings: list[str]


def in_python(name: str, value: Any) -> str:
    """How an option is written as an argument; long values are cut."""
    return name if value is None else f"{name}={_cut(repr(value))}"


def on_the_command_line(name: str, value: Any) -> str:
    flag = "--" + name.replace("_", "-")
    if value is None or value is True:
        return flag
    return f"--no-{flag[2:]}" if value is False else f"{flag} {_cut(str(value))}"


def translate(options: Mapping[str, Any], spelled: Spelling = in_python) -> Translated:
    """The options in octavo's terms; None means that an option was not given. `spelled` writes one for a message.

    Raises: ConfigError for an unknown name, what is not there, a wrong value, and two options that contradict each other.
    """
    own = fields_by_name()
    found = Translated({}, [])
    for name, value in options.items():
        if name in own:
            _put(found, own[name], own[name].normal(value), name)
        elif name in VLLM_OPTIONS:
            _settle(found, VLLM_OPTIONS[name], value, own, spelled)
        else:
            hint = did_you_mean(name, [*own, *VLLM_OPTIONS])
            raise ConfigError(f"unknown option {name[:100]!r}{hint}", param=name[:100])
    return found


def fields_by_name() -> dict[str, Flag]:
    """Every field of the configuration, by its name and its other names."""
    return {name: flag for flag in all_flags() for name in (flag.name, *flag.aliases)}


def _settle(found: Translated, option: VllmOption, value: Any, own: Mapping[str, Flag], spelled: Spelling) -> None:
    if value is None:
        return
    if option.answer == "sets":
        assert option.field is not None
        try:
            converted = option.convert(value)
        except (ValueError, TypeError):
            text = f"{spelled(option.name, value)} is not understood; it is {option.text}"
            raise ConfigError(text, param=option.name) from None
        checked = own[option.field].check(converted, spelled(option.name, None))
        _put(found, own[option.field], checked, option.name)
    elif not asks_for_nothing(option, value):
        if option.answer == "refuses":
            raise ConfigError(f"{spelled(option.name, value)} is not supported: {option.text}", param=option.name)
        found.warnings.append(f"{spelled(option.name, value)} has no effect: {option.text}")


def asks_for_nothing(option: VllmOption, value: Any) -> bool:
    """Whether the value means what happens anyway."""
    if isinstance(value, (str, list, tuple, dict)) and not value:
        return True
    return any(value == neutral and isinstance(value, bool) == isinstance(neutral, bool) for neutral in option.neutral)


def _put(found: Translated, flag: Flag, value: Any, name: str) -> None:
    if value is None:
        return
    if found.values.get(flag.name, value) != value:
        first, second = _cut(str(found.values[flag.name])), _cut(str(value))
        also = f", which {name} is another name of" if name != flag.name else ""
        raise ConfigError(f"{flag.name}{also}, is given twice, as {first} and as {second}; give one", param=name)
    found.values[flag.name] = value


def _cut(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:100]}..."
