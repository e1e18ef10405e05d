"""octavo keys: the file of --api-keys."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from octavo.cli.help import CONTEXT_SETTINGS, SectionedCommand
from octavo.errors import ConfigError
from octavo.server.access.key_file import ApiKey, check_name, digest_of, new_key, read_key_file, write_key_file
from octavo.server.access.limits import KeyLimits, limits_of

EXAMPLES = """
octavo keys add acme --file keys.toml --tokens-per-day 100000 --requests-per-minute 60
octavo keys list --file keys.toml
octavo keys revoke acme --file keys.toml
octavo serve --api-keys keys.toml                a running server reads a changed file by itself
"""

_file = click.option(
    "--file", "path", type=click.Path(path_type=Path, dir_okay=False), required=True, help="TOML; JSON if it ends so."
)


@click.group(context_settings=CONTEXT_SETTINGS)
def keys() -> None:
    """Add, list and revoke API keys. Their limits are explained in docs/access.md."""


@keys.command(cls=SectionedCommand, context_settings=CONTEXT_SETTINGS, examples=EXAMPLES)
@click.argument("name")
@_file
@click.option("--model", "models", multiple=True, help="A model that the key may use; may be repeated.")
@click.option("--route", "routes", multiple=True, help="A path that it opens, such as /v1/*; may be repeated.")
@click.option("--max-tokens", type=int, help="Most tokens of an answer.")
@click.option("--max-context-tokens", type=int, help="Most tokens of prompt and answer together.")
@click.option("--min-priority", type=int, help="Lowest priority number that it may ask for; lower is served first.")
@click.option("--requests-per-minute", type=int)
@click.option("--requests-per-day", type=int)
@click.option("--tokens-per-minute", type=int, help="Of prompts and answers.")
@click.option("--tokens-per-day", type=int, help="Of prompts and answers; days begin at midnight UTC.")
@click.option("--max-concurrent-requests", type=int, help="Requests that run at the same time.")
@click.option("--tenant", help="Whose its requests are. Default: NAME.")
@click.option("--weight", type=float, help="Share of the tenant under --scheduler-policy fair.")
def add(name: str, path: Path, **limits: Any) -> None:
    """Add the key NAME with these limits, and print it. It is shown this once: the file holds its hash alone."""
    check_name(name, f"{path}: key {name[:100]!r}")
    entries = read_key_file(path) if path.exists() else []
    if any(entry.name == name for entry in entries):
        raise ConfigError(f"{path} has a key {name!r} already; revoke it first, or take another name", param="name")
    given = {limit: value for limit, value in limits.items() if value is not None and value != ()}
    given |= {limit: list(value) for limit, value in given.items() if isinstance(value, tuple)}
    key = new_key()
    entries.append(ApiKey(name, digest_of(key.encode()), limits_of(given, f"{path}: key {name!r}")))
    write_key_file(path, entries)
    print(key)


@keys.command("list", cls=SectionedCommand, context_settings=CONTEXT_SETTINGS)
@_file
def list_keys(path: Path) -> None:
    """Print names and limits of all keys, one key a line."""
    for entry in read_key_file(path):
        limits = [
            f"{field.name}={','.join(value) if isinstance(value, tuple) else value}"
            for field in fields(KeyLimits)
            if (value := getattr(entry.limits, field.name)) not in (None, ())
        ]
        print(entry.name, *limits)


@keys.command(cls=SectionedCommand, context_settings=CONTEXT_SETTINGS)
@click.argument("name")
@_file
def revoke(name: str, path: Path) -> None:
    """Take the key NAME out of the file. What it has used today stays counted for a new key of this name."""
    entries = read_key_file(path)
    rest = [entry for entry in entries if entry.name != name]
    if len(rest) == len(entries):
        names = ", ".join(entry.name for entry in entries) or "none"
        raise ConfigError(f"{path} has no key {name[:100]!r}; it has {names}", param="name")
    write_key_file(path, rest)
    print(f"revoked {name}", file=sys.stderr)
