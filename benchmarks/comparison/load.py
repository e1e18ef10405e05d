"""The load: prompts of known length in English, and a closed loop that keeps so many requests under way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from comparison.processes import PeerError
from comparison.ratios import Metric
from comparison.servers import MODEL_NAME, ServerPeer
from comparison.settings import Settings
from octavo.cli.bench_options import LocalCodec
from octavo.loadgen.client import Connection, RemoteError, parse_target, timed_completion
from octavo.loadgen.report import percentile, summarize
from octavo.loadgen.runner import LoadSpec, completion_body, run_load
from octavo.loadgen.workload import Job, WorkloadSpec, make_jobs
from octavo.text.load import load_tokenizer

WARM_UP = Job("Hello there, this is a warm-up prompt of a few words", 12, 8)

SERVE_METRICS = (
    Metric("total_tok_s", "in + out throughput", "tok/s"),
    Metric("output_tok_s", "output throughput", "tok/s"),
    Metric("ttft_p50_ms", "time to first token p50", "ms", False),
    Metric("ttft_p99_ms", "time to first token p99", "ms", False),
    Metric("itl_p50_ms", "inter-token latency p50", "ms", False),
    Metric("itl_p99_ms", "inter-token latency p99", "ms", False),
    Metric("itl_p99_over_p50", "ITL p99 / p50", "ratio", False),
)


@dataclass(frozen=True, slots=True)
class LoadShape:
    """Mean tokens in and out, and their spread: each is drawn from [mean * (1 - spread), mean * (1 + spread)]."""

    input_len: int
    output_len: int
    spread: float
    text_file: str | None = None

    @property
    def longest(self) -> int:
        """Tokens that the longest request may need, with room for a tokenizer that differs a little."""
        return -(-int((self.input_len + self.output_len) * (1 + self.spread) * 1.1 + 16) // 64) * 64


def prepare_jobs(settings: Settings, shape: LoadShape, count: int, seed: int) -> list[Job]:
    """`count` jobs, the same for everybody who gets the same seed; lengths are exact in the model's own tokenizer."""
    spec = WorkloadSpec(
        num_prompts=count,
        input_len=shape.input_len,
        output_len=shape.output_len,
        range_ratio=shape.spread,
        text_file=shape.text_file,
        seed=seed,
    )
    return asyncio.run(make_jobs(spec, LocalCodec(load_tokenizer(settings.model))))


def closed_loop(peer: ServerPeer, url: str, jobs: Sequence[Job], concurrency: int) -> dict[str, float]:
    """Run the jobs, `concurrency` at any time. Raises PeerError if any request fails: a shed load is not a faster one."""
    return asyncio.run(_closed_loop(peer, url, jobs, concurrency))


async def _closed_loop(peer: ServerPeer, url: str, jobs: Sequence[Job], concurrency: int) -> dict[str, float]:
    target = parse_target(url)
    connection = Connection(target)
    try:
        model = MODEL_NAME if peer.command is not None else await first_model(connection)
        spec = LoadSpec(model=model, max_concurrency=concurrency, extra_body=peer.extra_body)
        warm_up = await timed_completion(connection, spec.path, completion_body(WARM_UP, spec), WARM_UP.prompt_len)
    except RemoteError as error:
        raise PeerError(f"{peer.name}: {error.message}") from None
    finally:
        connection.close()
    if warm_up.error is not None:
        raise PeerError(f"{peer.name}: the first request failed: {warm_up.error}")
    timings, seconds = await run_load(target, jobs, spec, lambda timing: None)
    summary = summarize(timings, seconds)
    if summary["failed"]:
        raise PeerError(f"{peer.name}: {summary['failed']} of {len(jobs)} requests failed: {summary['errors'][0]}")
    gaps = [gap for timing in timings for gap in timing.gaps_s]
    return serve_figures(summary, gaps)


def serve_figures(summary: dict[str, Any], gaps_s: Sequence[float]) -> dict[str, float]:
    """The figures of SERVE_METRICS; those of gaps are left out when every answer came in one piece."""
    figures = {
        "total_tok_s": float(summary["total_token_throughput"]),
        "output_tok_s": float(summary["output_throughput"]),
        "ttft_p50_ms": float(summary["median_ttft_ms"]),
        "ttft_p99_ms": float(summary["p99_ttft_ms"]),
    }
    median_s = percentile(gaps_s, 50)
    if median_s > 0:
        p99_s = percentile(gaps_s, 99)
        figures |= {"itl_p50_ms": median_s * 1e3, "itl_p99_ms": p99_s * 1e3, "itl_p99_over_p50": p99_s / median_s}
    return figures


async def first_model(connection: Connection) -> str:
    """The first name in /v1/models."""
    models = await connection.get_json("/v1/models")
    try:
        return str(models["data"][0]["id"])
    except (KeyError, IndexError, TypeError):
        raise RemoteError("the server lists no model at /v1/models") from None
