"""An abort storm: what a server counts equals what its client counts, and nothing is left behind.

python benchmarks/abort_storm.py http://127.0.0.1:8000 --requests 1000 --at-once 64

A third of the clients leave in the middle of their stream. Afterwards every gauge must be 0, and the counters must have
grown by the client's own count. The server must have nothing else to do. Exit code 1: they differ.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
from dataclasses import dataclass, field

import httpx

LONG = 400
"""Tokens asked for by those who leave: none ends before its server notices."""
GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_queued_tokens")
PATIENCE_S = 60.0


@dataclass(slots=True)
class Count:
    """A client's own count. received: tokens of streams that were left, which are the least that the server made."""

    completed: int = 0
    left: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    received: int = 0
    statuses: list[int] = field(default_factory=list)


async def storm(url: str, num_requests: int, at_once: int, seed: int = 0) -> Count:
    """Send the requests, at_once of them at a time; every third leaves after a few tokens."""
    count, places, rng = Count(), asyncio.Semaphore(at_once), random.Random(seed)
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=httpx.Limits(max_connections=at_once)) as client:
        jobs = []
        for index in range(num_requests):
            prompt = [rng.randrange(100, 200) for _ in range(rng.randint(4, 60))]
            leaves_after = rng.randint(1, 5) if index % 3 == 0 else None
            jobs.append(_one(client, places, prompt, leaves_after, rng.randint(1, 16), count))
        await asyncio.gather(*jobs)
    return count


async def _one(
    client: httpx.AsyncClient,
    places: asyncio.Semaphore,
    prompt: list[int],
    leaves_after: int | None,
    max_tokens: int,
    count: Count,
) -> None:
    body = {
        "prompt": prompt,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "return_token_ids": True,
        "max_tokens": max_tokens if leaves_after is None else LONG,
    }
    async with places, client.stream("POST", "/v1/completions", json=body) as answer:
        if answer.status_code != 200:
            count.statuses.append(answer.status_code)
            return
        received = 0
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            received += sum(len(choice.get("token_ids") or ()) for choice in event["choices"])
            if leaves_after is not None and received >= leaves_after:
                count.left += 1
                count.prompt_tokens += len(prompt)
                count.received += received
                return
            if event.get("usage"):
                count.completed += 1
                count.prompt_tokens += event["usage"]["prompt_tokens"]
                count.completion_tokens += event["usage"]["completion_tokens"]


def read_metrics(url: str) -> dict[str, float]:
    """Name -> value, without prefix; of request_success one for each reason."""
    values: dict[str, float] = {}
    for line in httpx.get(f"{url}/metrics", timeout=60).text.splitlines():
        match = re.fullmatch(r"\w+:(\w+)\{(.*)\} (\S+)", line)
        if match is None or match[1].endswith("_bucket"):
            continue
        reason = re.search(r'finished_reason="(\w+)"', match[2])
        name = f"{match[1]}:{reason[1]}" if reason else match[1]
        values[name] = values.get(name, 0.0) + float(match[3])
    return values


async def settled(url: str) -> dict[str, float]:
    """The metrics once every gauge is 0. Raises TimeoutError, naming those that are not."""
    end_s = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        values = await asyncio.to_thread(read_metrics, url)
        busy = {name: values[name] for name in GAUGES if values[name]}
        if not busy:
            return values
        if asyncio.get_running_loop().time() > end_s:
            raise TimeoutError(f"not 0 after {PATIENCE_S:g} s: {busy}")
        await asyncio.sleep(0.1)


def differences(before: dict[str, float], after: dict[str, float], count: Count) -> list[str]:
    """Where the server's counters did not grow by the client's count."""
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    expected = {
        "request_success_total:length": count.completed,
        "request_success_total:abort": count.left,
        "prompt_tokens_total": count.prompt_tokens,
        "e2e_request_latency_seconds_count": count.completed + count.left,
        "time_to_first_token_seconds_count": count.completed + count.left,
        "request_success_total:error": 0,
        "num_requests_shed_total": 0,
        "tenant_generation_tokens_total": grown["generation_tokens_total"],
        "request_generation_tokens_sum": grown["generation_tokens_total"],
    }
    wrong = [f"{name}: {grown[name]:g}, not {value:g}" for name, value in expected.items() if grown[name] != value]
    least = count.completion_tokens + count.received
    if not least <= grown["generation_tokens_total"] <= least + count.left * LONG:
        wrong.append(f"generation_tokens_total: {grown['generation_tokens_total']:g}, of which {least} were received")
    return wrong


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    before = await settled(options.url)
    count = await storm(options.url, options.requests, options.at_once, options.seed)
    wrong = differences(before, await settled(options.url), count)
    print(f"{count.completed} completed, {count.left} left, other answers: {len(count.statuses)}")
    print("\n".join(wrong) if wrong else "every gauge is 0 and every counter equals the client's own count")
    return 1 if wrong or count.statuses else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
