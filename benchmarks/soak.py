"""A server under twice the load it can take, while clients leave and settings and policies change: does anything break?

Run:  python benchmarks/soak.py MODEL [--minutes 10] [--seed 1]
Starts `octavo serve`, asks for a sample of answers one at a time, measures how many requests per second it can take, then
sends twice as many. Some clients leave in the middle; every few seconds an admin changes settings at random. At the end

- every answer has been 200, 429 or 503, and every sampled answer has the bytes it has alone;
- when all have gone no block is in use, the server's log has no error and it ends with exit code 0.

Prints one JSON object and ends with exit code 1 if anything of this is not so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

ADMIN_KEY = "soak-admin"
NUM_SAMPLES = 24
PROBE_S = 8.0
LEAVE_SHARE = 0.2
CHANGE_EVERY_S = (1.0, 5.0)
SETTINGS: tuple[dict[str, Any], ...] = (
    {"block_size": 8},
    {"block_size": 16},
    {"block_size": 32},
    {"max_num_seqs": 4},
    {"max_num_seqs": 16},
    {"max_num_seqs": 48},
    {"chunked_prefill_size": 32},
    {"chunked_prefill_size": 96},
    {"kv_cache_memory": 0.04},
    {"kv_cache_memory": 0.09},
    {"max_num_queued_requests": 10},
    {"max_num_queued_requests": 60},
)
OPTIONAL: tuple[dict[str, Any], ...] = (
    *({"scheduler_policy": policy} for policy in ("fcfs", "sjf", "priority", "fair")),
    *({"preemption_mode": mode} for mode in ("auto", "recompute", "swap")),
    *({"swap_space": gib} for gib in (0.003, 0.02, 0.05)),
    *({"admission": mode} for mode in ("optimistic", "guaranteed", "eager")),
    *({"target_itl": milliseconds} for milliseconds in (0, 40.0)),
    *({"max_num_queued_tokens": tokens} for tokens in (0, 4000)),
    *({"max_wait": seconds} for seconds in (2.0, 60.0)),
)
"""Used as far as the server knows them."""
ARGUMENTS = (
    "--port",
    "0",
    "--kv-cache-memory",
    "0.06",
    "--max-model-len",
    "768",
    "--max-num-seqs",
    "16",
    "--log-level",
    "info",
)


def bodies(seed: int) -> list[dict[str, Any]]:
    """The sampled requests: greedy and seeded, with penalties, logprobs and several choices; some share a beginning."""
    rng = random.Random(seed)
    shared = [rng.randrange(100, 40000) for _ in range(160)]
    made = []
    for index in range(NUM_SAMPLES):
        prompt = [rng.randrange(100, 40000) for _ in range(rng.choice((3, 17, 64, 130, 300, 500)))]
        body: dict[str, Any] = {
            "prompt": (shared + prompt)[:600] if index % 3 == 0 else prompt,
            "max_tokens": rng.choice((8, 24, 60, 120)),
            "temperature": 0.0 if index % 2 else 0.9,
            "seed": index,
            "logprobs": 2,
        }
        if index % 5 == 1:
            body |= {"presence_penalty": 0.4, "repetition_penalty": 1.1}
        if index % 6 == 2:
            body["n"] = 2
        made.append(body)
    return made


class Soak:
    """One run against one server."""

    def __init__(self, client: httpx.AsyncClient, seed: int) -> None:
        self.client = client
        self.rng = random.Random(seed)
        self.samples = bodies(seed)
        self.alone: list[bytes] = []
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.settings = list(SETTINGS)
        self.has_priorities = False
        """The policy in force reads them; others refuse them with 400."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, seconds: float) -> None:
        self.alone = [(await self._ask(body))[1] for body in self.samples]
        await self._find_settings()
        capacity = await self._capacity()
        self.counts["capacity_per_min"] = round(60 * capacity)
        changing = asyncio.create_task(self._change_settings())
        deadline_s = time.monotonic() + seconds
        while time.monotonic() < deadline_s:
            await asyncio.sleep(self.rng.expovariate(2 * capacity))
            self._spawn(self._one())
        changing.cancel()
        await asyncio.gather(changing, return_exceptions=True)
        await asyncio.gather(*self._tasks)
        await self._check_empty()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _capacity(self) -> float:
        """Requests per second with all seats taken."""
        done = 0
        deadline_s = time.monotonic() + PROBE_S

        async def work() -> None:
            nonlocal done
            while time.monotonic() < deadline_s:
                await self._one(leaves=False)
                done += 1

        started_s = time.monotonic()
        await asyncio.gather(*(work() for _ in range(16)))
        return max(0.5, done / (time.monotonic() - started_s))

    async def _one(self, leaves: bool | None = None) -> None:
        """One client: asks for a sampled answer, compares it; or reads a part of it and leaves."""
        index = self.rng.randrange(len(self.samples))
        body = dict(self.samples[index])
        if self.has_priorities:
            body["priority"] = self.rng.randrange(-3, 4)
        self.counts["requests"] += 1
        if leaves if leaves is not None else self.rng.random() < LEAVE_SHARE:
            await self._leave({**body, "stream": True}, self.rng.randrange(0, 12))
            return
        status, answer = await self._ask(body)
        self.counts[str(status)] += 1
        if status == 200:
            self.counts["compared"] += 1
            if answer != self.alone[index]:
                self.problems.append(f"sample {index} differs from its answer alone")
        elif status not in (429, 503):
            self.problems.append(f"status {status}: {answer[:300]!r}")

    async def _ask(self, body: dict[str, Any]) -> tuple[int, bytes]:
        """(status, the choices without anything that may differ)."""
        try:
            answer = await self.client.post("/v1/completions", json=body)
        except httpx.HTTPError as error:
            return 0, repr(error).encode()
        if answer.status_code != 200:
            return answer.status_code, answer.content
        return 200, json.dumps(answer.json()["choices"], sort_keys=True).encode()

    async def _leave(self, body: dict[str, Any], num_chunks: int) -> None:
        try:
            async with self.client.stream("POST", "/v1/completions", json=body) as answer:
                if answer.status_code not in (200, 429, 503):
                    self.problems.append(f"stream status {answer.status_code}: {(await answer.aread())[:300]!r}")
                async for _ in answer.aiter_lines():
                    num_chunks -= 1
                    if num_chunks <= 0:
                        break
            self.counts["left"] += 1
        except httpx.HTTPError as error:
            self.problems.append(f"a stream broke: {error!r}")

    async def _find_settings(self) -> None:
        """Add the optional settings that this server takes."""
        for change in OPTIONAL:
            if (await self._reconfigure(change)).status_code == 200:
                self.settings.append(change)
        await self._reconfigure({"scheduler_policy": "fcfs"})

    async def _change_settings(self) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(*CHANGE_EVERY_S))
            change = self.rng.choice(self.settings)
            if "scheduler_policy" in change:
                # Requests with priorities that are under way must arrive before their policy goes.
                self.has_priorities = False
                await asyncio.sleep(1.0)
            answer = await self._reconfigure(change)
            self.counts["reconfigurations"] += 1
            if answer.status_code == 200:
                self.counts["preempted_by_them"] += answer.json()["num_preempted"]
                self.counts["moved_tokens"] += answer.json()["num_moved_tokens"]
                self.has_priorities |= change.get("scheduler_policy") == "priority"
            else:
                self.problems.append(f"{change}: {answer.status_code} {answer.text[:300]}")

    async def _reconfigure(self, change: dict[str, Any]) -> httpx.Response:
        headers = {"authorization": f"Bearer {ADMIN_KEY}"}
        return await self.client.post("/admin/reconfigure", json=change, headers=headers)

    async def _check_empty(self) -> None:
        """All clients have gone: no block may be in use."""
        for _ in range(50):
            memory = (await self.client.get("/admin/memory", headers={"authorization": f"Bearer {ADMIN_KEY}"})).json()
            if memory["num_used"] == 0:
                return
            await asyncio.sleep(0.1)
        self.problems.append(f"{memory['num_used']} blocks are in use without a request: {memory['sequences']}")


def serve(model: Path, log: Any) -> tuple[subprocess.Popen[str], str]:
    """The server and its URL."""
    command = [sys.executable, "-m", "octavo", "serve", str(model), *ARGUMENTS, "--disable-log-requests"]
    env = {**os.environ, "OCTAVO_ADMIN_API_KEY": ADMIN_KEY}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=env)
    assert process.stdout is not None
    line = process.stdout.readline()
    url = next((word for word in line.split() if word.startswith("http")), None)
    if url is None:
        raise SystemExit(f"the server did not start; exit code {process.wait()}")
    return process, url.removesuffix("/v1")


async def soak(url: str, seconds: float, seed: int) -> Soak:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
        run = Soak(client, seed)
        await run.run(seconds)
        metrics = (await client.get("/metrics")).text
    for line in metrics.splitlines():
        if line.startswith(
            ("octavo:num_preemptions_total", "octavo:engine_restarts_total", "octavo:num_reconfigurations_total")
        ):
            run.counts[line.split("{")[0].removeprefix("octavo:")] = round(float(line.rpartition(" ")[2]))
    if run.counts["engine_restarts_total"]:
        run.problems.append("the engine core was restarted")
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("model", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryFile("w+") as log:
        process, url = serve(arguments.model, log)
        try:
            run = asyncio.run(soak(url, 60 * arguments.minutes, arguments.seed))
        finally:
            process.terminate()
            exit_code = process.wait(120)
        log.seek(0)
        errors = [line.strip() for line in log if " ERROR " in line or " CRITICAL " in line or "Traceback" in line]
    run.problems += [f"the log says: {line}" for line in errors]
    if exit_code != 0:
        run.problems.append(f"the server ended with exit code {exit_code}")
    problems = Counter(run.problems)
    print(json.dumps({"minutes": arguments.minutes, "seed": arguments.seed, **dict(sorted(run.counts.items()))}))
    for problem, count in problems.most_common(20):
        print(f"PROBLEM ({count} times): {problem}", file=sys.stderr)
    raise SystemExit(1 if problems else 0)


if __name__ == "__main__":
    main()
