"""--config FILE: options from a YAML file, as in vLLM. The command line and the environment win over it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from octavo.errors import ConfigError, did_you_mean


class ConfigFileOption(click.Option):
    """The option itself; what the file says becomes the context's defaults."""

    def __init__(self) -> None:
        super().__init__(
            ["--config"],
            metavar="FILE",
            is_eager=True,
            expose_value=False,
            callback=_use,
            help="YAML file of options, such as `max-model-len: 2k`. Command line and environment win over it.",
        )


def read_config_file(path: str, command: click.Command) -> dict[str, Any]:
    """Parameter name -> value as on the command line. Raises ConfigError naming file and key."""
    import yaml  # type: ignore[import-untyped]  # only who has such a file pays for it

    try:
        values = yaml.safe_load(Path(path).expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a UTF-8 text"
        raise ConfigError(f"--config {path}: {reason}", param="config") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"--config {path} is not valid YAML: {' '.join(str(error).split())[:300]}", param="config") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError(f"--config {path} must hold options, one `name: value` per line", param="config")
    return dict(_parameter(path, key, value, command) for key, value in values.items())


def _parameter(path: str, key: str, value: Any, command: click.Command) -> tuple[str, Any]:
    name = key.lstrip("-").replace("_", "-")
    known = {flag[2:]: option for option in command.params for flag in option.opts if flag.startswith("--")}
    option = known.get(name)
    if option is None or option.name is None or name == "config":
        hint = did_you_mean(name, known)
        raise ConfigError(f"--config {path}: {key!r} is no option of this command{hint}", param=name)
    if isinstance(option, click.Option) and option.is_flag and not isinstance(value, bool):
        raise ConfigError(f"--config {path}: {key} is {value!r}; it must be true or false", param=name)
    if isinstance(value, list):
        value = ",".join(map(str, value))
    elif isinstance(value, dict):
        value = json.dumps(value)
    return option.name, value if isinstance(value, bool) or value is None else str(value)


def _use(ctx: click.Context, parameter: click.Parameter, path: str | None) -> None:
    if path is not None:
        ctx.default_map = {**(ctx.default_map or {}), **read_config_file(path, ctx.command)}
