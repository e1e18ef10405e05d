"""octavo bench serve: load on a running server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from octavo.cli.bench_options import LENGTH, output_json_option, write_json
from octavo.cli.help import CONTEXT_SETTINGS, SectionedCommand
from octavo.errors import ConfigError
from octavo.loadgen.client import Connection, RemoteError, Target, Timing, parse_target, timed_completion
from octavo.loadgen.draft_counts import DraftCounts
from octavo.loadgen.report import summarize, table
from octavo.loadgen.runner import LoadSpec, completion_body, run_load
from octavo.loadgen.workload import Job, TextCodec, WorkloadSpec, make_jobs

EXAMPLES = """
octavo bench serve --num-prompts 64 --max-concurrency 16               closed loop: 16 requests at any time
octavo bench serve --request-rate 4 --input-len 512 --output-len 64    open loop: 4 new requests per second
octavo bench serve --url http://host:8000 --shared-prefix 512 --output-json run.json
"""


@click.command(cls=SectionedCommand, context_settings=CONTEXT_SETTINGS, examples=EXAMPLES)
@click.option("--url", "--base-url", default="http://127.0.0.1:8000", show_default=True, help="Any OpenAI-compatible server.")
@click.option("--model", metavar="NAME", help="Model to ask for. Default: the first in /v1/models.")
@click.option("--api-key", metavar="KEY", envvar="OCTAVO_API_KEY", help="Sent as 'Authorization: Bearer KEY'.")
@click.option("--endpoint", type=click.Choice(["completions", "chat"]), default="completions", show_default=True)
@click.option("--num-prompts", type=LENGTH, default=64, show_default=True, metavar="N", help="Requests in all.")
@click.option("--request-rate", type=click.FloatRange(0, min_open=True), metavar="R", help="New requests per second (Poisson).")
@click.option("--max-concurrency", type=LENGTH, metavar="N", help="Most requests at once. Default: no bound.")
@click.option(
    "--input-len", "--random-input-len", type=LENGTH, default=256, show_default=True, metavar="N", help="Prompt tokens."
)
@click.option(
    "--output-len", "--random-output-len", type=LENGTH, default=64, show_default=True, metavar="N", help="New tokens."
)
@click.option(
    "--random-range-ratio", type=click.FloatRange(0, 1), default=0.0, show_default=True, help="Spread of both lengths."
)
@click.option(
    "--shared-prefix", type=click.IntRange(0), default=0, metavar="N", help="Tokens all prompts begin with, added on top."
)
@click.option("--text-file", metavar="FILE", help="Take the prompts from this text instead of made-up English.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Chooses prompts, lengths and arrivals.")
@click.option("--extra-body", metavar="JSON", help="Further fields of every request body.")
@output_json_option
def serve(url: str, api_key: str | None, model: str | None, output_json: str | None, **values: Any) -> None:
    """Send generated prompts to a server, greedy and with ignore_eos, and report what a client sees.

    Prompt lengths are exact where the server has /tokenize (octavo, vLLM), else estimates; the report counts real usage.
    """
    target = parse_target(url, api_key)
    workload = WorkloadSpec(
        num_prompts=values["num_prompts"],
        input_len=values["input_len"],
        output_len=values["output_len"],
        range_ratio=values["random_range_ratio"],
        shared_prefix=values["shared_prefix"],
        text_file=values["text_file"],
        seed=values["seed"],
    )
    timings, duration_s, drafts = asyncio.run(_measure(target, model, workload, values))
    summary = {**summarize(timings, duration_s), **drafts.figures()}
    print(table(summary))
    for error in summary["errors"]:
        click.echo(f"error: {error}", err=True)
    settings = {name: values[name] for name in ("num_prompts", "request_rate", "max_concurrency", "input_len", "output_len")}
    write_json(output_json, {"url": url, **settings, "shared_prefix": values["shared_prefix"], **summary})
    if summary["completed"] == 0:
        raise RemoteError("no request succeeded")


async def _measure(
    target: Target, model: str | None, workload: WorkloadSpec, values: dict[str, Any]
) -> tuple[list[Timing], float, DraftCounts]:
    """Make the prompts, warm up with one request, run."""
    connection = Connection(target)
    model = model if model is not None else await _first_model(connection)
    spec = LoadSpec(
        model=model,
        request_rate=values["request_rate"],
        max_concurrency=values["max_concurrency"],
        chat=values["endpoint"] == "chat",
        seed=values["seed"],
        extra_body=_extra_body(values["extra_body"]),
    )
    jobs = await make_jobs(workload, await _remote_codec(connection, model))
    warm_up = await timed_completion(connection, spec.path, completion_body(Job("Hello there", 2, 4), spec), 2)
    before = await _draft_counts(connection)
    if warm_up.error is not None:
        raise RemoteError(f"the first request failed: {warm_up.error}")
    with _live_bar(len(jobs)) as on_done:
        timings, duration_s = await run_load(target, jobs, spec, on_done)
    after = await _draft_counts(connection)
    connection.close()
    return timings, duration_s, after.since(before)


async def _draft_counts(connection: Connection) -> DraftCounts:
    """What the server has guessed so far; a server may have no metrics."""
    try:
        return DraftCounts.read(await connection.get_text("/metrics"))
    except RemoteError:
        return DraftCounts()


async def _first_model(connection: Connection) -> str:
    models = await connection.get_json("/v1/models")
    try:
        return str(models["data"][0]["id"])
    except (KeyError, IndexError, TypeError):
        raise ConfigError("the server lists no model at /v1/models; give --model", param="model") from None


def _extra_body(text: str | None) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"--extra-body is not a JSON object: {error}", param="extra_body") from None


class _RemoteCodec:
    """A TextCodec that asks the server's /tokenize and /detokenize."""

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection = connection
        self._model = model

    async def encode(self, text: str) -> list[int]:
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        answer = await self._connection.post_json("/tokenize", body)
        return list(answer["tokens"])

    async def decode(self, token_ids: list[int]) -> str:
        answer = await self._connection.post_json("/detokenize", {"model": self._model, "tokens": token_ids})
        return str(answer["prompt"])


async def _remote_codec(connection: Connection, model: str) -> TextCodec | None:
    """The server's tokenizer, or None when it does not offer one in the usual form."""
    codec = _RemoteCodec(connection, model)
    try:
        await codec.decode(await codec.encode("Hello"))
    except (RemoteError, KeyError, TypeError):
        click.echo("note: the server has no /tokenize; prompt lengths are estimates", err=True)
        return None
    return codec


@contextmanager
def _live_bar(num_jobs: int) -> Iterator[Callable[[Timing], None]]:
    """A bar on stderr with running totals; yields the function that counts a finished request."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    start_s = time.perf_counter()
    failed = tokens = 0
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("requests", total=num_jobs)

        def on_done(timing: Timing) -> None:
            nonlocal failed, tokens
            failed += timing.error is not None
            tokens += timing.output_tokens
            rate = tokens / (time.perf_counter() - start_s)
            bar.update(task, advance=1, description=f"requests  {tokens} tokens  {rate:.0f} tokens/s  {failed} failed")

        yield on_done
