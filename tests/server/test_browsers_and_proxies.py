"""What browsers, probes and proxies in front send: preflights, HEAD, trailing slashes, a path in front."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from openapi_spec_validator import validate
from tests.server.conftest import MODEL, live_server

from octavo.config.server import ServerConfig, words_of
from octavo.errors import ConfigError

PAGE = "http://localhost:3000"
PREFLIGHT = {
    "origin": PAGE,
    "access-control-request-method": "POST",
    "access-control-request-headers": "content-type,authorization",
}
ASK = {"prompt": "x", "max_tokens": 2}


@contextmanager
def client_of(**settings: Any) -> Iterator[httpx.Client]:
    with live_server(ServerConfig(**settings)) as server, httpx.Client(base_url=server.url, timeout=15) as client:
        yield client


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/models", "/api/chat", "/", "/nowhere"])
def test_a_preflight_is_answered_before_the_key_is_asked_for(path: str) -> None:
    with client_of(api_key="secret") as client:
        answer = client.options(path, headers=PREFLIGHT)
        assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == "*"
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert answer.headers["access-control-allow-headers"] == "content-type,authorization"
        assert client.get("/v1/models", headers={"origin": PAGE}).status_code == 401


def test_answers_errors_and_streams_may_be_read_by_a_page(http: httpx.Client) -> None:
    for change, status in (({}, 200), ({"stream": True}, 200), ({"n": 0}, 400)):
        answer = http.post("/v1/completions", json={**ASK, **change}, headers={"origin": PAGE})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, "*")
        assert "x-request-id" in answer.headers["access-control-expose-headers"].lower()


@pytest.mark.parametrize("origins", [PAGE, f"https://a.example, {PAGE}", f'["{PAGE}"]'])
def test_only_named_origins_are_let_in(origins: str) -> None:
    with client_of(allowed_origins=origins, allow_credentials=True, allowed_methods="GET") as client:
        assert client.get("/health", headers={"origin": PAGE}).headers["access-control-allow-origin"] == PAGE
        assert "access-control-allow-origin" not in client.get("/health", headers={"origin": "http://evil.example"}).headers
        assert client.options("/v1/completions", headers=PREFLIGHT).status_code == 400  # POST is not among the methods


def test_without_origins_no_page_is_let_in() -> None:
    with client_of(allowed_origins="") as client:
        assert "access-control-allow-origin" not in client.get("/health", headers={"origin": PAGE}).headers


@pytest.mark.parametrize("text", ["[", "[1]", '["a", null]'])
def test_a_list_of_origins_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--allowed-origins"):
        words_of(text, "allowed_origins")


@pytest.mark.parametrize("path", ["/health", "/v1/models", f"/v1/models/{MODEL}", "/metrics", "/version", "/load", "/ready"])
def test_head_is_get_without_a_body(http: httpx.Client, path: str) -> None:
    get, head = http.get(path), http.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"] and "content-length" in head.headers


def test_a_trailing_slash_names_the_same_route(http: httpx.Client) -> None:
    for path in ("/v1/completions/", "/v1/completions//"):
        assert http.post(path, json=ASK).status_code == 200
    for path in ("/v1/models/", "/health/", f"/v1/models/{MODEL}/"):
        assert http.get(path).status_code == 200
    assert http.get("//").status_code == 200


@pytest.mark.parametrize("path", ["/admin/config/", "/llm/admin/config", "/llm/admin/config/", "/llm//admin/config"])
def test_no_spelling_of_a_path_opens_a_door(path: str) -> None:
    with client_of(root_path="/llm", api_key="secret") as client:
        assert client.get(path, headers={"authorization": "Bearer secret"}).status_code in (403, 404)
        assert client.get("/llm/v1/models/").status_code == 401


@pytest.mark.parametrize("root_path", ["/llm", "/llm/", "/team/llm"])
def test_a_proxy_may_strip_the_path_in_front_or_not(root_path: str) -> None:
    with client_of(root_path=root_path) as client:
        for prefix in ("", root_path.rstrip("/")):
            assert client.get(f"{prefix}/health").status_code == 200
            assert client.post(f"{prefix}/v1/completions", json=ASK).status_code == 200
        assert client.get("/openapi.json").json()["servers"] == [{"url": root_path.rstrip("/")}]


@pytest.mark.parametrize("settings", [{}, {"root_path": "/llm"}, {"enable_tokenizer_info_endpoint": True}])
def test_the_description_of_the_api_is_valid(settings: dict[str, Any]) -> None:
    with client_of(**settings) as client:
        description = client.get("/openapi.json").json()
        validate(description)
        stream_options = description["paths"]["/v1/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert "include_usage" in str(stream_options["properties"]["stream_options"])
        assert ("/tokenizer_info" in description["paths"]) == bool(settings.get("enable_tokenizer_info_endpoint"))
