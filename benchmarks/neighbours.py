"""What a client with forms costs its neighbours: the time between tokens of 16 streams, alone and beside one, or bombs.

    python benchmarks/neighbours.py [--seconds 12] [--rounds 4] [SCHEMAS.jsonl]

Starts `octavo serve` with the embedded model. Each phase takes --seconds with new streams; --rounds turns of all phases, the
first phase another one in each. The client asks for one answer after the other: without a form, as the measure of what any
17th client costs; with a schema, those of the file or four of its own; then for forms that are made to cost much. Prints the
medians of p50, p99 and the longest time in milliseconds, and the ratio to the client without forms. For a quiet machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from comparison.processes import free_port, running_server, wait_until_ready
from structured_outputs import RECORD, read_schemas

NUM_STREAMS = 16
WARM_UP_S = 3.0
OWN: list[Any] = [
    RECORD,
    {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 2, "maxItems": 8},
    {"type": "object", "additionalProperties": {"type": "number"}, "maxProperties": 4},
    {"type": "string", "pattern": "^[a-z]{3,8}( [a-z]{3,8}){4}$"},
]
BOMBS: list[dict[str, Any]] = [
    {"guided_regex": "(a|b)*c" * 15000},
    {"guided_regex": "((a{500}){500}){500}"},
    {"guided_json": {"type": "array", "items": {"type": "integer"}, "minItems": 10**9, "maxItems": 10**9}},
    {"guided_json": {"enum": [f"x{i * 7919}" for i in range(60000)]}},
    {"guided_json": {"oneOf": [{"properties": {f"p{i}": {"type": "string"}}} for i in range(3000)]}},
    {"guided_json": {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}, "$ref": "#/$defs/a"}},
    {"guided_choice": [f"x{i * 7919}" for i in range(4096)]},
]


class Streams:
    """Streams that go on until they are stopped; gaps_ms are the times between their tokens."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.gaps_ms: list[float] = []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._stream(index)) for index in range(NUM_STREAMS)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _stream(self, index: int) -> None:
        for turn in itertools.count():
            body = {"prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True, "seed": index + turn * NUM_STREAMS}
            async with self._client.stream("POST", "/v1/completions", json={**body, "stream": True}) as answer:
                last_s = None
                async for line in answer.aiter_lines():
                    now_s = time.perf_counter()
                    if last_s is not None and line:
                        self.gaps_ms.append(1e3 * (now_s - last_s))
                    last_s = now_s if line else last_s


async def form_client(client: httpx.AsyncClient, asked: Iterator[dict[str, Any]], counts: dict[int, int]) -> None:
    """One answer after the other."""
    for seed, fields in enumerate(asked):
        answer = await client.post("/v1/completions", json={"prompt": "JSON:\n", "max_tokens": 200, "seed": seed, **fields})
        counts[answer.status_code] = counts.get(answer.status_code, 0) + 1


async def measure(url: str, seconds: float, rounds: int, schemas: list[Any]) -> None:
    phases: list[tuple[str, list[dict[str, Any]]]] = [
        ("alone", []),
        ("beside a client without forms", [{}]),
        ("beside schemas", [{"guided_json": schema} for schema in schemas]),
        ("beside bombs", BOMBS),
    ]
    found: dict[str, list[list[float]]] = {name: [] for name, _ in phases}
    counts: dict[str, dict[int, int]] = {name: {} for name, _ in phases}
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
        for turn in range(rounds):
            for name, fields in phases[turn % len(phases) :] + phases[: turn % len(phases)]:
                found[name].append(await _one_phase(client, seconds, fields, counts[name]))
    plain = np.median(found["beside a client without forms"], axis=0)
    for name, rows in found.items():
        p50, p99, longest = np.median(rows, axis=0)
        answers = ", ".join(f"{count} answers with status {status}" for status, count in sorted(counts[name].items()))
        print(
            f"{name}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, longest {longest:.0f} ms; "
            f"ratio to the client without forms {p50 / plain[0]:.2f}, {p99 / plain[1]:.2f}{'; ' * bool(answers)}{answers}",
            flush=True,
        )


async def _one_phase(
    client: httpx.AsyncClient, seconds: float, fields: list[dict[str, Any]], counts: dict[int, int]
) -> list[float]:
    """p50, p99 and maximum in milliseconds. The streams are new in each phase, so that all phases have equal contexts."""
    streams = Streams(client)
    async with streams.running():
        await asyncio.sleep(WARM_UP_S)
        streams.gaps_ms.clear()
        other = asyncio.create_task(form_client(client, itertools.cycle(fields), counts)) if fields else None
        await asyncio.sleep(seconds)
        if other is not None:
            other.cancel()
            await asyncio.gather(other, return_exceptions=True)
    return [*np.percentile(streams.gaps_ms, [50, 99]).tolist(), max(streams.gaps_ms)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("schemas", type=Path, nargs="?")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    schemas = OWN if options.schemas is None else read_schemas(options.schemas)
    port = free_port()
    command = [sys.executable, "-m", "octavo", "serve", "--port", str(port), "--max-num-seqs", "24", "--max-model-len", "2048"]
    with running_server("octavo", command, port) as server:
        wait_until_ready("octavo", server, 120)
        asyncio.run(measure(f"http://127.0.0.1:{port}", options.seconds, options.rounds, schemas))


if __name__ == "__main__":
    main()
