"""octavo pull: fetch a model."""

from __future__ import annotations

import click

from octavo.cli.help import CONTEXT_SETTINGS, SectionedCommand
from octavo.cli.lazy_progress import lazy_pull_progress
from octavo.config.flags import environment
from octavo.loader.hub import default_cache_dir, resolve_model

EXAMPLES = """
octavo pull                                   the embedded SmolLM2-135M-Instruct
octavo pull Qwen/Qwen3-0.6B                   a Hugging Face repository
octavo serve "$(octavo pull gemma3-270m)"     fetch and serve
"""


@click.command(cls=SectionedCommand, context_settings=CONTEXT_SETTINGS, examples=EXAMPLES)
@click.argument("name", required=False, default="")
@click.option("--revision", metavar="NAME", help="Branch, tag or commit of a hub repository.")
def pull(name: str, revision: str | None) -> None:
    """Fetch the model NAME into the cache and print where it lies. Without a name: the embedded model.

    NAME is an embedded model or a Hugging Face hub name (owner/model, or owner/model:PART for one file of a GGUF repository).
    Embedded models are checked against their SHA-256. A model that is there already is not fetched again.
    """
    with lazy_pull_progress() as progress:
        path = resolve_model(name, cache_dir=default_cache_dir(environment()), revision=revision, report=progress)
    print(path)
