"""What the measuring commands share: options that describe a workload, JSON output, exact prompts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from octavo.engine.llm_engine import LLMEngine
from octavo.errors import ConfigError
from octavo.loadgen.draft_counts import DraftCounts, draft_rows
from octavo.loadgen.workload import Job, TextCodec, WorkloadSpec, make_jobs
from octavo.ops.cpu.limits import Limits, measure_limits
from octavo.text.tokenizer import Tokenizer

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

LENGTH = click.IntRange(1, 2**24)


def output_json_option(command: CommandT) -> CommandT:
    return click.option("--output-json", metavar="FILE", help="Write the figures to FILE, too.")(command)


def profile_option(command: CommandT) -> CommandT:
    return click.option("--profile", is_flag=True, help="Show where the time went, op by op, against the machine's limits.")(
        command
    )


def engine_limits(engine: LLMEngine) -> Limits:
    """The limits of the machine with the engine's own threads and kernel variant."""
    backend = engine.resolved_config.backend
    return measure_limits(backend.num_threads, backend.isa)


def print_drafts(engine: LLMEngine, before: DraftCounts) -> dict[str, Any]:
    """Print what was guessed since, if anything was; its figures."""
    figures = draft_counts(engine).since(before).figures()
    for name, value in draft_rows(figures):
        print(f"{name}: {value}")
    return figures


def draft_counts(engine: LLMEngine) -> DraftCounts:
    stats = engine.stats()
    return DraftCounts(stats.num_drafts, stats.num_draft_tokens, list(stats.accepted_at))


def write_json(path: str | None, figures: Mapping[str, Any]) -> None:
    """Raises ConfigError when the file cannot be written."""
    if path is not None:
        try:
            Path(path).write_text(json.dumps(figures, indent=2) + "\n")
        except OSError as error:
            raise ConfigError(f"--output-json {path}: {error.strerror}", param="output_json") from None


class LocalCodec:
    """A TextCodec over a tokenizer in this process. Without BOS: it is the server's to add."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    async def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)

    async def decode(self, token_ids: list[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=False)


def local_prompts(spec: WorkloadSpec, tokenizer: Tokenizer) -> list[list[int]]:
    """The spec's prompts as token ids."""
    codec: TextCodec = LocalCodec(tokenizer)
    jobs: list[Job] = asyncio.run(make_jobs(spec, codec))
    return [tokenizer.encode(job.prompt, add_special_tokens=False) for job in jobs]
