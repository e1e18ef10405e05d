"""ServedModel: what the text side of an engine needs of a model: its names, header, tokenizer, chat template and defaults."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

from octavo.config.engine import EngineConfig
from octavo.config.model import ModelConfig
from octavo.engine.frontend.pooling_defaults import pooling_in_force
from octavo.engine.frontend.sampling_defaults import sampling_in_force
from octavo.errors import ConfigError
from octavo.loader.checkpoint import open_config
from octavo.loader.hub import default_cache_dir, resolve_model
from octavo.loader.pypi import FetchReport
from octavo.loader.sampling_advice import SamplingAdvice
from octavo.text.chat_template import ChatTemplate
from octavo.text.load import load_tokenizer
from octavo.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ServedModel:
    """chat_template.exists tells whether the model has one; sampling is what requests get that say nothing."""

    name: str
    config: ModelConfig
    tokenizer: Tokenizer
    chat_template: ChatTemplate
    sampling: SamplingAdvice

    def describe(self) -> str:
        """The line printed at start: what becomes of requests that say nothing."""
        if self.config.has_head:
            return self.sampling.describe()
        pooling = self.config.pooling
        return f"pooling  {pooling.kind}, {'' if pooling.normalize else 'not '}normalised; the model makes embeddings alone"


def locate_model(config: EngineConfig, report: FetchReport | None = None) -> EngineConfig:
    """The configuration with model and tokenizer replaced by local paths (fetched first if need be), served under its name.

    Raises LoadError in one line when there is no such model.
    """
    loading = config.loading
    cache_dir = default_cache_dir(os.environ)
    path = resolve_model(loading.model, cache_dir=cache_dir, revision=loading.revision, report=report)
    tokenizer = loading.tokenizer
    if tokenizer is not None:
        tokenizer = str(path if tokenizer == loading.model else resolve_model(tokenizer, cache_dir=cache_dir, report=report))
    names = json.dumps(loading.served_names)
    return replace(config, loading=replace(loading, model=str(path), tokenizer=tokenizer, served_model_name=names))


def load_served_model(config: EngineConfig) -> ServedModel:
    """Header, tokenizer and chat template of a located model; no weight is read. Raises LoadError or ConfigError."""
    loading = config.loading
    path = Path(loading.model)
    model, advice = open_config(path, loading.load_format)
    model = replace(model, pooling=pooling_in_force(loading, model.pooling))
    tokenizer = load_tokenizer(path if loading.tokenizer is None else Path(loading.tokenizer))
    template = ChatTemplate.for_tokenizer(tokenizer, _template_source(loading.chat_template))
    sampling = sampling_in_force(loading, advice)
    return ServedModel(loading.served_names[0], model, tokenizer, template, sampling)


def _template_source(given: str | None) -> str | None:
    """Jinja source of --chat-template: itself if it can only be Jinja, else the content of the file it names."""
    if given is None or "{" in given or "\n" in given:
        return given
    try:
        return Path(os.path.expanduser(given)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--chat-template {given}: neither Jinja source nor a readable file ({error})", param="chat_template"
        ) from None
