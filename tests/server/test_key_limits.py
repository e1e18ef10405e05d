"""Keys with limits, over HTTP: what they open, how much they may ask for, what is told when nothing is left."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_type_hints

import httpx
import pytest
from tests.server.conftest import MODEL, LiveServer, live_server

from octavo.config.server import ServerConfig
from octavo.errors import EngineDeadError
from octavo.server.access.key_file import digest_of
from octavo.server.access.metered import MeteredEngine
from octavo.server.access.usage import UsageStore
from octavo.server.middleware.quota import duration
from octavo.server.service.engine_face import Engine

KEY = {"authorization": "Bearer sk-a"}
CHAT = {"messages": [{"role": "user", "content": "x"}]}


def write_keys(path: Path, **keys: dict[str, Any]) -> None:
    """Each key is `sk-` and its name."""
    entries = {name: {"hash": f"sha256:{digest_of(f'sk-{name}'.encode()).hex()}", **limits} for name, limits in keys.items()}
    path.write_text(json.dumps({"keys": entries}))


@contextmanager
def limited(tmp_path: Path, **limits: Any) -> Iterator[LiveServer]:
    """A server with one key, sk-a."""
    write_keys(tmp_path / "keys.json", a=limits)
    with live_server(ServerConfig(api_keys=str(tmp_path / "keys.json")), model_names=(MODEL, "second")) as live:
        yield live


def complete(live: LiveServer, **body: Any) -> httpx.Response:
    return httpx.post(f"{live.url}/v1/completions", json={"prompt": "12345", **body}, headers=KEY, timeout=15)


def used(live: LiveServer) -> tuple[int, int]:
    usage: UsageStore = live.app.state.context.usage
    return live.call(lambda: usage.use_today("a"))


def leave(live: LiveServer) -> None:
    """Until the server has seen that nobody reads the stream any more."""
    while live.engine.running:
        live.call(live.engine.deliver_one)


def test_the_true_use_is_charged(tmp_path: Path) -> None:
    with limited(tmp_path, tokens_per_day=1000) as live:
        usage = complete(live, max_tokens=7).json()["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (5, 7)
        assert used(live) == (1, 12)
        usage = complete(live, max_tokens=300, stop=" from").json()["usage"]
        assert used(live) == (2, 17 + usage["completion_tokens"])
        live.engine.fail_first = EngineDeadError("gone")
        assert complete(live).status_code == 503
        assert used(live) == (3, 17 + usage["completion_tokens"])


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_whose_tokens_end_says_so_and_the_next_request_is_refused(tmp_path: Path, stream: bool) -> None:
    with limited(tmp_path, tokens_per_day=20) as live:
        answer = complete(live, max_tokens=100, stream=stream)
        assert answer.status_code == 200
        last = [line for line in answer.text.splitlines() if '"finish_reason":"length"' in line][-1]
        choice = json.loads(last.removeprefix("data: "))["choices"][0]
        assert choice["stop_reason"] == "token_quota"
        assert used(live) == (1, 20)
        refused = complete(live, max_tokens=1, stream=stream)
        assert refused.status_code == 429 and refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert int(refused.headers["retry-after"]) > 0
        assert refused.headers["x-ratelimit-limit-tokens"] == "20" and refused.headers["x-ratelimit-remaining-tokens"] == "0"


def test_a_client_that_leaves_is_charged_what_was_made(tmp_path: Path) -> None:
    with limited(tmp_path, tokens_per_day=1000) as live:
        live.call(live.engine.release.clear)
        url = f"{live.url}/v1/completions"
        with httpx.stream("POST", url, json={"prompt": "12345", "stream": True, "max_tokens": 100}, headers=KEY) as answer:
            next(answer.iter_lines())
        leave(live)
        requests, tokens = used(live)
        assert requests == 1 and 6 <= tokens < 30


def test_every_prompt_and_choice_counts_and_a_beam_counts_its_prompt_once(tmp_path: Path) -> None:
    with limited(tmp_path, tokens_per_day=100_000) as live:
        for body in ({"prompt": ["123", "45"], "n": 2, "max_tokens": 4}, {"use_beam_search": True, "n": 2, "max_tokens": 3}):
            before = used(live)[1]
            usage = complete(live, **body).json()["usage"]
            # The first step of a beam search makes all beams of one token.
            assert used(live)[1] - before == usage["total_tokens"] - ("use_beam_search" in body)
        before = used(live)[1]
        embedding = httpx.post(f"{live.url}/v1/embeddings", json={"input": ["abc", "de"]}, headers=KEY).json()
        assert used(live)[1] - before == embedding["usage"]["total_tokens"] == 5


@pytest.mark.parametrize(
    ("limits", "body", "param"),
    [
        ({"max_tokens": 5}, {"max_tokens": 6}, "max_tokens"),
        ({"max_context_tokens": 10}, {"max_tokens": 6}, "max_tokens"),
        ({"max_context_tokens": 5}, {}, "prompt"),
        ({"min_priority": 0}, {"priority": -1}, "priority"),
        ({"models": ["second"]}, {"model": MODEL}, "model"),
    ],
)
def test_what_a_key_may_not_ask_is_refused_by_name(
    tmp_path: Path, limits: dict[str, Any], body: dict[str, Any], param: str
) -> None:
    with limited(tmp_path, **limits) as live:
        answer = complete(live, **body)
        assert answer.status_code in (400, 404) and answer.json()["error"]["param"] == param, answer.text
        assert used(live)[1] == 0


def test_without_a_wish_an_answer_is_as_long_as_the_key_allows(tmp_path: Path) -> None:
    with limited(tmp_path, max_tokens=5) as live:
        answer = httpx.post(f"{live.url}/v1/chat/completions", json=CHAT, headers=KEY).json()
        assert answer["usage"]["completion_tokens"] == 5 and answer["choices"][0]["finish_reason"] == "length"


def test_a_key_sees_its_models_alone(tmp_path: Path) -> None:
    with limited(tmp_path, models=["second", "elsewhere"]) as live:
        models = httpx.get(f"{live.url}/v1/models", headers=KEY).json()["data"]
        assert [model["id"] for model in models] == ["second"]
        assert complete(live).json()["model"] == "second"
    with limited(tmp_path, models=["elsewhere"]) as live:
        assert complete(live).status_code == 403


def test_a_key_opens_its_routes_alone(tmp_path: Path) -> None:
    with limited(tmp_path, routes=["/v1/chat/*", "/v1/models"]) as live:
        expected = {"/v1/chat/completions": 200, "/v1/completions": 403, "/v1/chat": 403}
        assert {path: httpx.post(live.url + path, json=CHAT, headers=KEY).status_code for path in expected} == expected
        assert httpx.get(f"{live.url}/v1/models", headers=KEY).status_code == 200


def test_requests_per_minute_come_with_the_headers_that_clients_know(tmp_path: Path) -> None:
    with limited(tmp_path, requests_per_minute=2, tokens_per_minute=100) as live:
        first = complete(live, max_tokens=2)
        assert first.headers["x-ratelimit-limit-requests"] == "2" and first.headers["x-ratelimit-remaining-requests"] == "1"
        assert 90 <= int(first.headers["x-ratelimit-remaining-tokens"]) <= 93
        assert complete(live).status_code == 200
        refused = complete(live)
        assert refused.status_code == 429 and 1 <= int(refused.headers["retry-after"]) <= 30
        assert refused.headers["x-ratelimit-reset-requests"].endswith("s")


def test_requests_at_the_same_time_are_limited(tmp_path: Path) -> None:
    with limited(tmp_path, max_concurrent_requests=1) as live:
        live.call(live.engine.release.clear)
        url = f"{live.url}/v1/completions"
        with httpx.stream("POST", url, json={"prompt": "12345", "stream": True}, headers=KEY) as answer:
            next(answer.iter_lines())
            refused = complete(live)
            assert refused.status_code == 429 and "runs 1 requests already" in refused.text
            assert used(live)[0] == 1
        leave(live)
        live.call(live.engine.release.set)
        assert complete(live).status_code == 200


def test_the_key_names_tenant_and_never_the_user_field(tmp_path: Path) -> None:
    with limited(tmp_path, tenant="team") as live:
        complete(live, user="someone")
        assert live.engine.tenants == ["team"]


def test_the_engine_generates_nothing_that_is_not_metered() -> None:
    generating = {
        name for name, member in vars(Engine).items() if "AsyncGenerator" in str(getattr(member, "__annotations__", ""))
    }
    assert generating == {"generate", "encode"}
    for name in generating:
        hints = get_type_hints(getattr(MeteredEngine, name), localns={"AsyncGenerator": AsyncGenerator})
        assert "AsyncGenerator" in str(hints["return"])


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0ms"), (0.12, "120ms"), (5.2, "6s"), (90, "1m30s"), (7200, "2h0m0s"), (3661, "1h1m1s")]
)
def test_durations_read_as_openai_writes_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
