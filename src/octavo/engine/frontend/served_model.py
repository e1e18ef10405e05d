"""ServedModel: what the text side of an engine needs of a model: its names, header, tokenizer, chat template and defaults."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from octavo.config.engine import EngineConfig
from octavo.config.model import ModelConfig
from octavo.errors import ConfigError
from octavo.loader.checkpoint import open_config
from octavo.loader.hub import default_cache_dir, resolve_model
from octavo.text.chat_template import ChatTemplate
from octavo.text.load import load_tokenizer
from octavo.text.tokenizer import Tokenizer

Report = Callable[[str, int, "int | None"], None]
"""(stage, bytes done, bytes in all) while a model is fetched."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """chat_template.exists tells whether the model has one; generation_defaults has the names of SamplingParams."""

    name: str
    config: ModelConfig
    tokenizer: Tokenizer
    chat_template: ChatTemplate
    generation_defaults: dict[str, float | int]


def locate_model(config: EngineConfig, report: Report | None = None) -> EngineConfig:
    """The configuration with loading.model replaced by a local path (fetched first if need be), served under its name.

    Raises LoadError in one line when there is no such model.
    """
    loading = config.loading
    path = resolve_model(loading.model, cache_dir=default_cache_dir(os.environ), report=report)
    return replace(
        config, loading=replace(loading, model=str(path), served_model_name=loading.served_model_name or loading.model)
    )


def load_served_model(config: EngineConfig) -> ServedModel:
    """Header, tokenizer and chat template of a located model; no weight is read. Raises LoadError or ConfigError."""
    loading = config.loading
    path = Path(loading.model)
    model, defaults = open_config(path, loading.load_format)
    tokenizer = load_tokenizer(path)
    template = ChatTemplate.for_tokenizer(tokenizer, _template_source(loading.chat_template))
    name = (loading.served_model_name or loading.model).partition(",")[0]
    return ServedModel(name, model, tokenizer, template, defaults)


def _template_source(given: str | None) -> str | None:
    """Jinja source of --chat-template: itself if it can only be Jinja, else the content of the file it names."""
    if given is None or "{" in given or "\n" in given:
        return given
    try:
        return Path(given).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--chat-template {given}: neither Jinja source nor a readable file ({error})", param="chat_template"
        ) from None
