"""Runner: send jobs to a server, in a closed loop (so many at once) or an open one (so many per second)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from octavo.loadgen.client import Connection, Target, Timing, timed_completion
from octavo.loadgen.workload import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSpec:
    """How to send.

    request_rate     requests per second with Poisson arrivals; None sends each as soon as max_concurrency lets it
    max_concurrency  most requests under way; None means no bound
    chat             use /v1/chat/completions instead of /v1/completions
    extra_body       further fields of every body
    """

    model: str
    request_rate: float | None = None
    max_concurrency: int | None = None
    chat: bool = False
    seed: int = 0
    extra_body: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if self.chat else "/v1/completions"


async def run_load(
    target: Target, jobs: Sequence[Job], spec: LoadSpec, on_done: Callable[[Timing], None]
) -> tuple[list[Timing], float]:
    """(timings in job order, duration in seconds). on_done hears of each finished request."""
    timings: list[Timing | None] = [None] * len(jobs)
    gate = asyncio.Semaphore(spec.max_concurrency if spec.max_concurrency is not None else len(jobs))
    idle: list[Connection] = []
    arrivals = arrival_times(len(jobs), spec)
    start_s = time.perf_counter()

    async def run(index: int) -> None:
        await asyncio.sleep(max(0.0, start_s + arrivals[index] - time.perf_counter()))
        async with gate:
            connection = idle.pop() if idle else Connection(target)
            timing = await timed_completion(connection, spec.path, completion_body(jobs[index], spec), jobs[index].prompt_len)
            idle.append(connection)
            timings[index] = timing
            on_done(timing)

    try:
        await asyncio.gather(*(run(index) for index in range(len(jobs))))
    finally:
        for connection in idle:
            connection.close()
    return [timing for timing in timings if timing is not None], time.perf_counter() - start_s


def arrival_times(count: int, spec: LoadSpec) -> list[float]:
    """Seconds after the start at which each request is due."""
    if spec.request_rate is None:
        return [0.0] * count
    rng = random.Random(spec.seed)
    times = [0.0]
    while len(times) < count:
        times.append(times[-1] + rng.expovariate(spec.request_rate))
    return times[:count]


def completion_body(job: Job, spec: LoadSpec) -> dict[str, Any]:
    """The request body of one job: greedy, streamed, exactly output_len tokens."""
    body: dict[str, Any] = {
        "model": spec.model,
        "max_tokens": job.output_len,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if spec.chat:
        body["messages"] = [{"role": "user", "content": job.prompt}]
    else:
        body["prompt"] = job.prompt
    return body | spec.extra_body
