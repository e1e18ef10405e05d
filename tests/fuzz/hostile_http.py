"""Fuzzing HTTP: hostile requests to a real server with a tiny random model, while a neighbour asks the same again and again.

    python -m tests.fuzz.hostile_http [--count N] [--first SEED]

No answer is a 500, none takes longer than 20 s, the server and its core live on, and the neighbour's bytes never change.
Prints one line per fault, with the seed that makes the request again, and ends with exit code 1 if there was one.
"""

from __future__ import annotations

import argparse
import re
import socket
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from tests.fuzz.bodies import ADMIN_KEY, BODIES, Hostile, hostile
from tests.fuzz.mutations import write_whole_folder
from tests.served import Served

HANG_S = 20.0
CLIENTS = 3
OPTIONS = ("--kv-cache-memory", "0.05", "--max-model-len", "256", "--num-threads", "1", "--log-level", "error")
NEIGHBOUR = {
    "prompt": "ab abc",
    "max_tokens": 24,
    "temperature": 0,
    "ignore_eos": True,
    "logprobs": 3,
}
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")


def campaign(first: int, last: int) -> tuple[Counter[str], list[str]]:
    """How many requests had which status, and the faults."""
    counts: Counter[str] = Counter()
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="octavo-fuzz-") as place:
        write_whole_folder(Path(place))
        options = (*OPTIONS, "--admin-api-key", ADMIN_KEY, "--enable-tokenizer-info-endpoint")
        served = Served(Path(place), *options)
        try:
            faults.extend(_refused_whole(served.url))
            before = _neighbour(served.url)
            if isinstance(before, str):
                return counts, [f"the neighbour was refused: {before}"]
            with ThreadPoolExecutor(CLIENTS + 1) as pool:
                sent = [pool.submit(_attack, served.url, seed) for seed in range(first, last)]
                while not all(future.done() for future in sent) and served.process.poll() is None:
                    if _neighbour(served.url) != before:
                        faults.append(f"http {first} to {last}: the neighbour's answer changed")
            for future in sent:
                status, fault = future.result()
                counts[status] += 1
                faults.extend([fault] if fault else [])
            if _neighbour(served.url) != before:
                faults.append(f"http {first} to {last}: the neighbour's answer has changed")
            if served.metrics()["engine_restarts_total"]:
                faults.append(f"http {first} to {last}: the core was restarted")
        finally:
            code, errors = served.stop()
        if code != 0 or "Traceback" in errors:
            faults.append(f"http {first} to {last}: exit code {code}, {errors[-2000:]}")
    return counts, faults


def _neighbour(url: str) -> Any:
    """The part of the answer that must never change."""
    answer = httpx.post(f"{url}/v1/completions", json=NEIGHBOUR, timeout=60)
    return answer.json()["choices"] if answer.status_code == 200 else answer.text


def _refused_whole(url: str) -> list[str]:
    """What the server refuses of the requests before they are damaged: nothing, or the damage would not go deep."""
    refused = []
    for path, body in BODIES.items():
        answer = httpx.post(f"{url}{path}", json=body, headers={"Authorization": f"Bearer {ADMIN_KEY}"}, timeout=60)
        refused += [] if answer.status_code == 200 else [f"{path}: {answer.text}"]
    return refused


def _attack(url: str, seed: int) -> tuple[str, str | None]:
    """The status of the answer ("closed" without one), and the fault if there was one."""
    request = hostile(seed)
    start_s = time.monotonic()
    answer = _send(url, request, start_s + HANG_S)
    label = f"http {seed} ({request.what})"
    if answer is None:
        return "fault", f"{label}: no end within {HANG_S} s"
    statuses = [found.decode() for found in _STATUS.findall(answer)]  # 100 may come first, and a message may hold several
    status = statuses[-1] if statuses else "closed"
    if any(found[0] == "5" for found in statuses) or b"internal error;" in answer or b"engine_unavailable" in answer:
        return "fault", f"{label}: {answer[:300]!r}"
    if status == "closed" and request.must_answer:
        return "fault", f"{label}: no answer, {answer[:100]!r}"
    return status, None


def _send(url: str, request: Hostile, deadline_s: float) -> bytes | None:
    """All that the server writes until it closes; None if it does not in time."""
    host, port = url.removeprefix("http://").split(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=HANG_S) as connection:
        try:
            for piece in request.pieces:
                connection.sendall(piece)
            if request.ends:
                connection.shutdown(socket.SHUT_WR)
        except TimeoutError:
            return None
        except OSError:
            pass  # it has answered, and closed, before the end
        try:
            while piece := connection.recv(1 << 16):
                answer += piece
                connection.settimeout(max(0.01, deadline_s - time.monotonic()))
        except TimeoutError:
            return None
        except OSError:
            pass
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description="Send hostile requests to a server.")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    options = parser.parse_args()
    counts, faults = campaign(options.first, options.first + options.count)
    print("http: " + ", ".join(f"{number} {status}" for status, number in sorted(counts.items())))
    print("".join(f"  {fault}\n" for fault in faults), end="", flush=True)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
