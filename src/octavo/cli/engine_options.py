"""What all commands that load a model share: the MODEL argument, engine options, and the configuration made of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from octavo.config.engine import EngineConfig
from octavo.config.flags import ENGINE_SECTIONS, config_options, make_engine_config, unknown_variables
from octavo.errors import ConfigError

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def model_argument(command: CommandT) -> CommandT:
    """The optional MODEL; --model says the same."""
    return click.argument("model_argument", metavar="[MODEL]", required=False)(command)


def engine_options(command: CommandT) -> CommandT:
    """All options of the engine's configuration."""
    return config_options(ENGINE_SECTIONS.values())(command)


def engine_config(model: str | None, values: Mapping[str, Any]) -> EngineConfig:
    """The engine's configuration from parsed options; MODEL wins over the environment, and must not contradict --model.

    Prints a warning for each OCTAVO_ variable that nothing reads. Raises ConfigError.
    """
    for warning in unknown_variables():
        print(f"octavo: warning: {warning}", file=sys.stderr)
    config = make_engine_config(values)
    loading = config.loading
    if model is not None:
        source = click.get_current_context().get_parameter_source("model")
        if source is click.core.ParameterSource.COMMANDLINE and loading.model != model:
            raise ConfigError(f"MODEL is {model!r} and --model is {loading.model!r}; give one", param="model")
        loading = replace(loading, model=model)
    if loading.chat_template is not None:
        loading = replace(loading, chat_template=read_chat_template(loading.chat_template))
    return replace(config, loading=loading)


def read_chat_template(value: str) -> str:
    """Jinja source, given as it is (it then has a brace) or as the name of a file."""
    if "{" in value:
        return value
    try:
        return Path(os.path.expanduser(value)).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a UTF-8 text"
        raise ConfigError(
            f"--chat-template {value!r} is neither Jinja source nor a readable file: {reason}", param="chat_template"
        ) from None
