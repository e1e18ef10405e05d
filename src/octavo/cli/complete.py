"""octavo complete: continue one text."""

from __future__ import annotations

import sys
from typing import Any

import click

from octavo.cli.help import CONTEXT_SETTINGS, SectionedCommand
from octavo.cli.source_options import open_source, sampling_of, source_options
from octavo.errors import ConfigError

EXAMPLES = """
octavo complete --prompt "The capital of France is" --max-tokens 16 --temperature 0
git diff | octavo complete model.gguf --max-tokens 100
octavo complete --url http://127.0.0.1:8000 --prompt "Once upon a time"
"""


@click.command(cls=SectionedCommand, context_settings=CONTEXT_SETTINGS, examples=EXAMPLES)
@click.option("--prompt", "-p", metavar="TEXT", help="The text to continue. Without it: standard input.")
@source_options
def complete(model_argument: str | None, prompt: str | None, **values: Any) -> None:
    """Continue a text with MODEL; the continuation streams to standard output. Ctrl-C ends it."""
    if prompt is None:
        if sys.stdin.isatty():
            raise ConfigError("no text to continue: give --prompt TEXT or pipe it in", param="prompt")
        try:
            prompt = sys.stdin.read()
        except UnicodeDecodeError as error:
            raise ConfigError(f"standard input is not valid {error.encoding} text", param="prompt") from None
    if not prompt:
        raise ConfigError("the prompt is empty; give at least one character", param="prompt")
    source = open_source(model_argument, values)
    try:
        for text in source.continuation(prompt, sampling_of(values)):
            sys.stdout.write(text)
            sys.stdout.flush()
        sys.stdout.write("\n")
    finally:
        source.close()
