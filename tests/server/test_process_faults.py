"""The processes of a real server die or stand still under load: nobody hangs, nothing is left behind, answers stay the same."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.served import Served

pytestmark = pytest.mark.alone

NUM_REQUESTS = 6
OPTIONS = ("--kv-cache-memory", "0.125", "--max-model-len", "1024", "--max-num-seqs", "4", "--log-level", "error")


@pytest.fixture
def served(smollm2_gguf: Path) -> Iterator[Served]:
    started = Served(smollm2_gguf, *OPTIONS)
    yield started
    code, errors = started.stop()
    assert code in (0, -signal.SIGKILL) and "Traceback" not in errors, errors


def complete(served: Served, max_tokens: int, *, stream: bool = False) -> httpx.Response:
    body = {"prompt": "Once upon a time", "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": stream}
    return httpx.post(f"{served.url}/v1/completions", json=body, timeout=120)


def formed(served: Served) -> list[tuple[str, str]]:
    """(arguments or text, why it ended) of a call that is required and of an answer with a schema, seeded."""
    schema = {"type": "object", "properties": {"age": {"type": "integer"}, "name": {"type": "string", "maxLength": 20}}}
    asked = {**schema, "required": ["age", "name"], "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": "greet", "parameters": asked}}]
    forms: list[dict[str, Any]] = [
        {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": asked}}},
    ]
    found = []
    for seed, form in enumerate(forms):
        body = {"messages": [{"role": "user", "content": "Who is there?"}], "max_tokens": 200, "seed": seed, **form}
        (choice,) = httpx.post(f"{served.url}/v1/chat/completions", json=body, timeout=120).json()["choices"]
        calls = choice["message"].get("tool_calls") or []
        found.append((calls[0]["function"]["arguments"] if calls else choice["message"]["content"], choice["finish_reason"]))
    return found


def load(served: Served, pool: ThreadPoolExecutor) -> list[Future[httpx.Response]]:
    """Requests that run for long, every second one streamed; returns when some are being computed and some wait."""
    started = [pool.submit(complete, served, 900, stream=index % 2 == 0) for index in range(NUM_REQUESTS)]
    wait_for(lambda: served.metrics()["kv_cache_usage_perc"] > 0 and served.metrics()["num_requests_waiting"] > 0)
    return started


def wait_for(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s


def test_a_killed_core_fails_its_requests_and_is_replaced(served: Served) -> None:
    before, formed_before = complete(served, 16).json()["choices"], formed(served)
    assert [reason for _, reason in formed_before] == ["tool_calls", "stop"]
    killed = served.core_pid
    with ThreadPoolExecutor(NUM_REQUESTS) as pool:
        requests = load(served, pool)
        os.kill(killed, signal.SIGKILL)
        for answer in (request.result() for request in requests):
            assert answer.status_code == 503 or (answer.status_code == 200 and "[DONE]" not in answer.text)
            assert "engine_unavailable" in answer.text
    wait_for(lambda: httpx.get(f"{served.url}/health").status_code == 200)
    assert served.core_pid != killed
    assert complete(served, 16).json()["choices"] == before and formed(served) == formed_before
    wait_for(served.is_idle)
    assert served.metrics()["engine_restarts_total"] == 1


def test_a_core_that_stands_still_goes_on_where_it_was(served: Served) -> None:
    before = complete(served, 40).json()["choices"]
    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(complete, served, 40)
        wait_for(lambda: served.metrics()["kv_cache_usage_perc"] > 0 or request.done())
        os.kill(served.core_pid, signal.SIGSTOP)
        try:
            assert httpx.get(f"{served.url}/health").status_code == 200  # silent for less than its patience
            assert httpx.get(f"{served.url}/v1/models").status_code == 200
        finally:
            os.kill(served.core_pid, signal.SIGCONT)
        assert request.result().json()["choices"] == before


def test_a_killed_server_takes_its_core_along(served: Served) -> None:
    core = Path(f"/proc/{served.core_pid}/cmdline")
    with ThreadPoolExecutor(NUM_REQUESTS) as pool:
        requests = load(served, pool)
        served.process.kill()
        assert all(request.exception() is not None or "[DONE]" not in request.result().text for request in requests)
    served.wait()
    wait_for(lambda: not core.exists() or not core.read_bytes())  # a zombie has no command line


def test_a_full_queue_is_429_and_says_when_to_come_back(smollm2_gguf: Path) -> None:
    served = Served(smollm2_gguf, *OPTIONS, "--max-num-queued-requests", "1")
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda index: complete(served, 60, stream=index % 2 == 0), range(12)))
    refused = [answer for answer in answers if answer.status_code != 200]
    assert 0 < len(refused) < len(answers)
    assert all(answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert served.metrics()["num_requests_shed_total"] == len(refused)
    wait_for(served.is_idle)
    assert served.stop() == (0, "")
