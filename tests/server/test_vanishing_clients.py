"""64 clients that vanish at random moments from a real server: all they held comes back, and nobody else notices."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.served import Served

pytestmark = pytest.mark.alone

NUM_CLIENTS = 64
SEED = 20
DEADLINE_S = 15.0
"""For a machine that is busy with other things; alone it takes about half a second, the rest of the step in flight."""


@pytest.fixture(scope="module")
def served(smollm2_gguf: Path) -> Iterator[Served]:
    options = ("--kv-cache-memory", "0.125", "--max-model-len", "1024", "--max-num-seqs", "12", "--disable-log-requests")
    started = Served(smollm2_gguf, *options)
    yield started
    code, errors = started.stop()
    assert code == 0 and "Traceback" not in errors, errors


def greedy_answer(served: Served) -> bytes:
    body = {"prompt": "The history of printing began", "max_tokens": 24, "temperature": 0, "logprobs": 3}
    answer = httpx.post(f"{served.url}/v1/completions", json=body, timeout=120).json()
    return json.dumps(answer["choices"]).encode()


def vanish(served: Served, index: int, seed: int) -> None:
    """One client: ask, read for a random while, leave by closing or by a reset; every second one streams."""
    random_ = random.Random(seed * 1000 + index)
    prompt = [random_.randrange(10, 40000) for _ in range(random_.choice((3, 60, 300, 700)))]
    body = json.dumps({"prompt": prompt, "max_tokens": 300, "ignore_eos": True, "stream": index % 2 == 0}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(served.url.rpartition(":")[2]))) as sock:
        sock.sendall(head % len(body) + body)
        leave_s = time.monotonic() + random_.random() ** 2 * 4
        while (left_s := leave_s - time.monotonic()) > 0:
            sock.settimeout(left_s)
            try:
                if not sock.recv(4096):
                    break
            except TimeoutError:
                break
        if index % 3 == 0:  # a reset instead of an orderly end
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def storm(served: Served, seed: int) -> None:
    clients = [threading.Thread(target=vanish, args=(served, index, seed)) for index in range(NUM_CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()


def wait_until_idle(served: Served) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not served.is_idle():
        assert time.monotonic() < deadline_s, served.metrics()


def test_vanished_clients_leave_nothing_and_change_nothing(served: Served) -> None:
    print(f"seed {SEED}")
    before = greedy_answer(served)
    start = served.metrics()
    for round_ in range(2):
        storm(served, SEED + round_)
        wait_until_idle(served)
        assert greedy_answer(served) == before
    grown = {name: value - start.get(name, 0.0) for name, value in served.metrics().items()}
    ended, scheduled, answering = (
        grown[f"{name}_seconds_count"] for name in ("e2e_request_latency", "request_queue_time", "time_to_first_token")
    )
    # They left in every phase: queued, in prefill, while decoding; and each was counted exactly once.
    assert ended == grown["request_success_total"] == 2 * NUM_CLIENTS + 2
    assert ended > scheduled > answering > 2
    assert grown["engine_restarts_total"] == 0
