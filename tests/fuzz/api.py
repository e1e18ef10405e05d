"""Fuzzing by description: schemathesis makes requests of the server's own /openapi.json, valid ones and others.

    OCTAVO_PYTHON=PYTHON python -m tests.fuzz.api [--count N] [--seed SEED]

No answer is a 5xx, none takes longer than 20 s, what is refused has an error in it, and the bytes of a neighbour never change.
Prints one line per fault, and ends with exit code 1 if there was one.
Runs where schemathesis is (`make fuzz-api`); OCTAVO_PYTHON has octavo.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from tests.served import Served

HANG_S = 20.0
OPTIONS = ("--kv-cache-memory", "0.05", "--max-model-len", "256", "--num-threads", "1", "--log-level", "error")
NEIGHBOUR = {"prompt": "ab abc", "max_tokens": 24, "temperature": 0, "ignore_eos": True, "logprobs": 3}
ADMIN_KEY = "fuzz"
PASSED_OVER = ("/metrics", "/admin/reconfigure")
"""What answers with a growing text; what changes the server on purpose."""
WRITE = "import sys; from pathlib import Path; from tests.fuzz.mutations import write_whole_folder as w; w(Path(sys.argv[1]))"


class Neighbour(threading.Thread):
    """Asks the same again and again; num_asked, and whether the answer ever changed."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url, self._ended = url, threading.Event()
        self.expected, self.num_asked, self.changed = self._ask(), 1, 0

    def _ask(self) -> Any:
        with httpx.stream("POST", f"{self._url}/v1/completions", json={**NEIGHBOUR, "stream": True}, timeout=120) as answer:
            pieces = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: {")]
        # How many tokens stand in one piece is a matter of time; what they are is not.
        choices = [choice for piece in pieces for choice in piece["choices"]]
        logprobs = [choice["logprobs"] for choice in choices if choice["logprobs"]]
        numbers = [(found["tokens"], found["token_logprobs"], found["top_logprobs"]) for found in logprobs]
        parts = [[value for values in column for value in values] for column in zip(*numbers, strict=True)]
        return "".join(choice["text"] for choice in choices), parts, choices[-1]["finish_reason"]

    def run(self) -> None:
        while not self._ended.is_set():
            self.changed += self._ask() != self.expected
            self.num_asked += 1

    def stop(self) -> None:
        self._ended.set()
        self.join(timeout=120)


class Attack:
    """Sends what is made; counts: how many answers had which status; faults: the first request of each kind of fault."""

    def __init__(self, url: str, first_seed: int) -> None:
        self._url, self._seed = url, first_seed
        self.counts: Counter[str] = Counter()
        self.faults: dict[str, str] = {}

    def run(self, count: int) -> None:
        """About count requests, half of them as the description wants them, half not."""
        schema = schemathesis.openapi.from_url(f"{self._url}/openapi.json")
        operations = [found.ok() for found in schema.get_all_operations()]
        operations = [operation for operation in operations if operation.path not in PASSED_OVER]
        share = max(2, count // sum(operation.method == "post" for operation in operations))  # others soon have no new requests
        for operation in operations:
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                self._run_one(operation, mode, max(1, share // 2))

    def _run_one(self, operation: Any, mode: GenerationMode, count: int) -> None:
        checks = list(HealthCheck)
        quiet = settings(
            max_examples=count, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=checks
        )
        cases: st.SearchStrategy[Any] = operation.as_strategy(generation_mode=mode)
        with contextlib.suppress(Unsatisfiable):  # nothing can be wrong with a request without a body
            seed(self._seed)(quiet(given(cases)(lambda case: self._send(case, mode.value))))()

    def _send(self, case: Any, mode: str) -> None:
        label, body, start_s = f"{case.method} {case.path} {mode}", repr(case.body)[:400], time.monotonic()
        try:
            answer = case.call(base_url=self._url, headers={"Authorization": f"Bearer {ADMIN_KEY}"}, timeout=HANG_S)
        except requests.RequestException as error:
            self.faults.setdefault(f"{label}: {type(error).__name__} after {time.monotonic() - start_s:.1f} s", body)
            return
        self.counts[str(answer.status_code)] += 1
        if answer.status_code >= 500:
            self.faults.setdefault(f"{label}: {answer.status_code} {answer.text[:200]}", body)
        elif answer.status_code >= 400 and '"error"' not in answer.text:
            self.faults.setdefault(f"{label}: {answer.status_code} without an error, {answer.text[:200]}", body)


def campaign(count: int, first_seed: int) -> tuple[Counter[str], list[str], int]:
    """How many answers had which status, the faults, and how often the neighbour asked."""
    python = os.environ["OCTAVO_PYTHON"]
    with tempfile.TemporaryDirectory(prefix="octavo-fuzz-") as place:
        subprocess.run([python, "-c", WRITE, place], check=True)
        served = Served(Path(place), *OPTIONS, "--admin-api-key", ADMIN_KEY, "--enable-tokenizer-info-endpoint", python=python)
        try:
            neighbour = Neighbour(served.url)
            neighbour.start()
            attack = Attack(served.url, first_seed)
            attack.run(count)
            neighbour.stop()
            faults = [f"{fault} for {body}" for fault, body in attack.faults.items()]
            if neighbour.changed:
                faults.append(f"the neighbour's answer changed {neighbour.changed} times of {neighbour.num_asked}")
            if served.metrics()["engine_restarts_total"]:
                faults.append("the core was restarted")
        finally:
            code, errors = served.stop()
        if code != 0 or "Traceback" in errors:
            faults.append(f"exit code {code}, {errors[-2000:]}")
    return attack.counts, faults, neighbour.num_asked


def main() -> None:
    parser = argparse.ArgumentParser(description="Send requests made of the server's OpenAPI document.")
    parser.add_argument("--count", type=int, default=2300)  # gives some 2,000: GET has few variants
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts, faults, num_asked = campaign(options.count, options.seed)
    print("api: " + ", ".join(f"{number} {status}" for status, number in sorted(counts.items())), f"; neighbour {num_asked}")
    print("".join(f"  {fault}\n" for fault in faults), end="", flush=True)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
