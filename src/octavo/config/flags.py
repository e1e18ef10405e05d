"""Flags: configuration fields as command-line options, environment names and a table for the docs.

The one reader of os.environ. A field `max_num_seqs` is the flag --max-num-seqs (or --max_num_seqs), the environment variable
OCTAVO_MAX_NUM_SEQS and one row of docs/configuration.md, which `python -m octavo.config.flags` prints.
"""

from __future__ import annotations

import json
import os
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import click

from octavo.config.backend import BackendConfig
from octavo.config.cache import CacheConfig
from octavo.config.engine import EngineConfig
from octavo.config.human_int import human_int
from octavo.config.loading import LoadingConfig
from octavo.config.scheduler import SchedulerConfig
from octavo.config.server import ServerConfig
from octavo.errors import ConfigError, did_you_mean

ENGINE_SECTIONS: dict[str, type[Any]] = {
    "loading": LoadingConfig,
    "cache": CacheConfig,
    "scheduler": SchedulerConfig,
    "backend": BackendConfig,
}
TITLES: dict[type[Any], str] = {
    LoadingConfig: "Model",
    CacheConfig: "KV cache",
    SchedulerConfig: "Scheduler",
    BackendConfig: "Compute",
    ServerConfig: "Server",
}
ENV_PREFIX = "OCTAVO_"
DEBUG_VARIABLE = "OCTAVO_DEBUG"
OTHER_VARIABLES = {
    DEBUG_VARIABLE: "1 shows a traceback where a user's mistake would be one line.",
    "OCTAVO_CACHE": "Folder for downloaded models. Default: ~/.cache/octavo.",
}

# Kubernetes (and Docker's links) put the addresses of a Service named octavo, or octavo-*, into the environment of every pod.
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
_SERVICE_VARIABLE = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")

SectionT = TypeVar("SectionT")
CommandT = TypeVar("CommandT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One configuration field as the user meets it. kind is bool, int, float or str; bounds are inclusive."""

    name: str
    kind: type
    default: Any
    help: str
    low: float | None
    high: float | None
    choices: tuple[str | int, ...]
    metavar: str | None
    aliases: tuple[str, ...]
    synonyms: Mapping[Any, Any]
    human: bool

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.upper()

    @property
    def range_text(self) -> str:
        """The allowed values in words, "" when anything goes."""
        if self.choices:
            return ", ".join(map(str, self.choices))
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}" if self.kind is float else f"{int(self.low)} to {int(self.high)}"
        return ""

    def normal(self, value: Any, source: str | None = None) -> Any:
        """value in the field's own spelling: "half" is "float16", "2k" is 2000, a list is joined with commas.

        Raises ConfigError for "2x", which is neither.
        """
        if isinstance(value, (str, int, float)) and not isinstance(value, bool) and value in self.synonyms:
            return self.synonyms[value]
        if self.kind is str and isinstance(value, (list, tuple)):
            return ",".join(map(str, value))
        if self.kind is str and isinstance(value, dict):
            return json.dumps(value)
        if not (self.human and isinstance(value, str)):
            return value
        try:
            return human_int(value)
        except ValueError:
            raise self._wrong(f"a whole number{self._limits()}, or one like 2k or 2K", value, source) from None

    def check(self, value: Any, source: str | None = None) -> Any:
        """value as the field's type. Raises ConfigError naming the flag (or source), the value and the limits."""
        value = self.normal(value, source)
        if value is None or self.kind is bool:
            return value
        try:
            checked = self.kind(value)
        except (ValueError, OverflowError):
            raise self._wrong(("a whole number" if self.kind is int else "a number") + self._limits(), value, source) from None
        if self.choices and checked not in self.choices:
            hint = did_you_mean(str(checked), self.choices)
            raise self._wrong(f"one of {self.range_text}{hint}", value, source)
        if self.low is not None and self.high is not None and not self.low <= checked <= self.high:
            raise self._wrong(self.range_text, checked, source)
        return checked

    def _wrong(self, wanted: str, value: Any, source: str | None) -> ConfigError:
        text = repr(value) if isinstance(value, str) else str(value)
        shown = text if len(text) <= 100 else f"{text[:100]}..."
        return ConfigError(f"{source or self.option} is {shown}; it must be {wanted}", param=self.name)

    def _limits(self) -> str:
        return f", {self.range_text}" if self.range_text else ""


def flags_of(section: type[Any]) -> list[Flag]:
    """The flags of a configuration section, in field order."""
    hints = get_type_hints(section)
    return [_flag(field, hints[field.name]) for field in fields(section) if "help" in field.metadata]


def _flag(field: Field[Any], hint: Any) -> Flag:
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = [arg for arg in get_args(hint) if arg is not type(None)]
    assert hint in (bool, int, float, str), f"{field.name}: {hint} cannot be a flag"
    meta = field.metadata
    return Flag(
        name=field.name,
        kind=hint,
        default=field.default,
        help=meta["help"],
        low=meta["low"],
        high=meta["high"],
        choices=meta["choices"],
        metavar=meta["metavar"],
        aliases=meta["aliases"],
        synonyms=meta["synonyms"],
        human=meta["human"],
    )


if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # older releases of click have it without a parameter


class _CheckedType(_ParamType):
    """click's view of a flag's type: the check is ours, so that every message has one form."""

    def __init__(self, flag: Flag) -> None:
        self.flag = flag
        self.name = flag.kind.__name__

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        if self.flag.choices:
            return "[" + "|".join(map(str, self.flag.choices)) + "]"
        return self.flag.metavar or {int: "N", float: "X", str: "TEXT"}[self.flag.kind]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        source = None
        if ctx is not None and param is not None and param.name is not None:
            found = ctx.get_parameter_source(param.name)
            if found is click.core.ParameterSource.ENVIRONMENT:
                source = self.flag.env
            elif found is click.core.ParameterSource.DEFAULT_MAP:
                source = f"{self.flag.name} in the --config file"
        return self.flag.check(value, source)


class FlagOption(click.Option):
    """A click option made from a configuration field; `section` groups it in --help."""

    def __init__(self, flag: Flag, section: str) -> None:
        names = [flag.option, *("--" + alias.replace("_", "-") for alias in flag.aliases)]
        self.section = section
        if flag.kind is bool:
            names = [f"{name}/--no-{name[2:]}" for name in names]
        super().__init__(
            [*names, flag.name],
            type=click.BOOL if flag.kind is bool else _CheckedType(flag),
            default=flag.default,
            envvar=flag.env,
            help=_help_text(flag),
        )

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        value = super().resolve_envvar_value(ctx)
        return None if value is not None and _SERVICE_ADDRESS.match(value) else value


def _help_text(flag: Flag) -> str:
    """Help with range and default; the default is named only where the text does not do it already."""
    text = flag.help
    if flag.range_text and not flag.choices:
        text += f" [{flag.range_text}]"
    if flag.default is not None and "Default:" not in text:
        shown = ("on" if flag.default else "off") if flag.kind is bool else flag.default
        text += f" [default: {shown}]"
    return text


def config_options(sections: Iterable[type[Any]], *, skip: Sequence[str] = ()) -> Callable[[CommandT], CommandT]:
    """Decorator: give a click command the options of these sections, but for the fields in skip."""

    def decorate(command: CommandT) -> CommandT:
        options: list[click.Parameter] = [
            FlagOption(flag, TITLES[section]) for section in sections for flag in flags_of(section) if flag.name not in skip
        ]
        declared = command.__dict__.setdefault("__click_params__", [])
        declared.extend(reversed(options))
        return command

    return decorate


def make_section(section: type[SectionT], values: Mapping[str, Any]) -> SectionT:
    """The section from parsed values; names of other sections are ignored. Raises ConfigError for values out of range."""
    return section(**{flag.name: flag.check(values[flag.name]) for flag in flags_of(section) if flag.name in values})


def make_engine_config(values: Mapping[str, Any]) -> EngineConfig:
    """The engine's sections from parsed values."""
    return EngineConfig(**{name: make_section(section, values) for name, section in ENGINE_SECTIONS.items()})


def all_flags() -> list[Flag]:
    return [flag for section in TITLES for flag in flags_of(section)]


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """One warning per OCTAVO_ variable that nothing reads, with the near one: a typo there would otherwise pass in silence.

    What Kubernetes sets for a Service is expected to be there; only a variable that has a flag's name gets a line.
    """
    known = [flag.env for flag in all_flags()] + list(OTHER_VARIABLES)
    warnings = []
    environ = os.environ if environ is None else environ
    for name in sorted(environ):
        if name in known and _SERVICE_ADDRESS.match(environ[name]):
            warnings.append(
                f"environment variable {name} is the address of a Kubernetes Service and has no effect; set "
                "enableServiceLinks: false in the pod, or give the option"
            )
        elif name.startswith(ENV_PREFIX) and name not in known and not _is_of_service(name, environ[name]):
            hint = did_you_mean(name, known)
            warnings.append(f"environment variable {name} is not known and has no effect{hint}")
    return warnings


def _is_of_service(name: str, value: str) -> bool:
    return _SERVICE_VARIABLE.fullmatch(name) is not None or _SERVICE_ADDRESS.match(value) is not None


def environment() -> Mapping[str, str]:
    """os.environ, for those who are handed their environment."""
    return os.environ


def debug_enabled() -> bool:
    """OCTAVO_DEBUG is set to something that means yes."""
    return os.environ.get(DEBUG_VARIABLE, "").lower() not in ("", "0", "false", "no")


def docs_page() -> str:
    """docs/configuration.md."""
    lines = [_DOCS_HEAD]
    for section, title in TITLES.items():
        lines += [f"## {title}", "", "| flag | environment | default | values | meaning |", "|---|---|---|---|---|"]
        lines += [_docs_row(flag) for flag in flags_of(section)]
        lines.append("")
    lines += ["## Other environment variables", "", "| name | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in OTHER_VARIABLES.items()]
    return "\n".join(lines) + "\n"


_DOCS_HEAD = """# Configuration

<!-- Generated by `python -m octavo.config.flags`; a test compares. Edit the fields in src/octavo/config/ instead. -->

Every setting is a flag and an environment variable; the flag wins. `--max-num-seqs` and `--max_num_seqs` are the same. Switches
have a `--no-` form; as environment variables they take `1` or `0`. A value out of range ends the command with exit code 2 and
one line that names the flag, the value and the limits. `--config FILE` reads settings from YAML, such as `max-model-len: 2k`;
flags and environment win over it. What the options of vLLM do here stands in [vllm.md](vllm.md).
"""


def _docs_row(flag: Flag) -> str:
    names = " ".join(f"`{name}`" for name in (flag.option, *("--" + alias.replace("_", "-") for alias in flag.aliases)))
    if flag.kind is bool:
        default, values = ("on" if flag.default else "off"), "on, off"
    else:
        default, values = ("" if flag.default is None else f"`{flag.default}`"), flag.range_text
    return f"| {names} | `{flag.env}` | {default} | {values} | {flag.help.replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    sys.stdout.write(docs_page())
