"""The options of chat and complete: sampling, and where the text comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from octavo.cli.conversation import LocalSource, RemoteSource, Sampling, TextSource
from octavo.cli.engine_options import engine_config, engine_options, model_argument
from octavo.loadgen.client import parse_target
from octavo.sampling_params import MAX_TEMPERATURE

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_OWN = (
    click.option("--url", metavar="URL", help="Ask a running server, e.g. http://127.0.0.1:8000, instead of loading a model."),
    click.option("--api-key", metavar="KEY", envvar="OCTAVO_API_KEY", help="Key for --url."),
    click.option("--temperature", type=click.FloatRange(0, MAX_TEMPERATURE), help="0 always takes the likeliest token."),
    click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), help="Draw from the likeliest tokens that make up P."),
    click.option("--max-tokens", type=click.IntRange(1, 2**31 - 1), metavar="N", help="Longest answer in tokens."),
    click.option("--seed", type=click.IntRange(-(2**63), 2**63 - 1), metavar="N", help="Equal seeds give equal answers."),
)


def source_options(command: CommandT) -> CommandT:
    """MODEL, --url, the sampling options, and all engine options."""
    command = engine_options(command)
    for option in reversed(_OWN):
        command = option(command)
    return model_argument(command)


def open_source(model: str | None, values: Mapping[str, Any]) -> TextSource:
    """A server with --url, else an engine in this process. Raises ConfigError, LoadError or RemoteError."""
    if values["url"] is not None:
        return RemoteSource(parse_target(values["url"], values["api_key"]), model)
    return LocalSource(engine_config(model, values))


def sampling_of(values: Mapping[str, Any]) -> Sampling:
    return Sampling(
        temperature=values["temperature"], top_p=values["top_p"], max_tokens=values["max_tokens"], seed=values["seed"]
    )
