"""Whose request it is, how long it may take, and what a shed one is told."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from tests.server.conftest import live_server

from octavo.config.server import ServerConfig
from octavo.errors import OverloadedError

CHAT = {"messages": [{"role": "user", "content": "x"}]}


def test_the_user_field_names_the_tenant_where_there_are_not_several_keys() -> None:
    with live_server(ServerConfig(api_key="k0")) as live:
        headers = {"authorization": "Bearer k0"}
        for body in ({"prompt": "x", "user": "ann"}, {"prompt": "x"}, {"prompt": "x", "user": ""}):
            assert httpx.post(f"{live.url}/v1/completions", json=body, headers=headers).status_code == 200
        assert live.engine.tenants == ["ann", "default", "default"]


def test_with_several_keys_the_key_names_the_tenant_whatever_the_user_field_says(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("acme k1\nbeta k2\n")
    with live_server(ServerConfig(api_key_file=str(tmp_path / "keys"))) as live:
        for key in ("k1", "k2", "k3"):
            headers = {"authorization": f"Bearer {key}"}
            answer = httpx.post(f"{live.url}/v1/chat/completions", json={**CHAT, "user": "acme"}, headers=headers)
            assert answer.status_code == (401 if key == "k3" else 200)
        assert live.engine.tenants == ["acme", "beta"]


def test_a_timeout_reaches_the_engine() -> None:
    with live_server(ServerConfig()) as live:
        assert httpx.post(f"{live.url}/v1/completions", json={"prompt": "x", "timeout": 2}).status_code == 200
        assert httpx.post(f"{live.url}/v1/chat/completions", json={**CHAT, "timeout": 0.5}).status_code == 200
        assert live.engine.timeouts_s == [2.0, 0.5]


@pytest.mark.parametrize(
    ("field", "value"), [("timeout", 0), ("timeout", -1), ("timeout", 1e9), ("timeout", "3"), ("user", 3), ("user", "u" * 257)]
)
def test_values_that_cannot_be_are_refused_by_name(field: str, value: object) -> None:
    with live_server(ServerConfig()) as live:
        answer = httpx.post(f"{live.url}/v1/completions", json={"prompt": "x", field: value})
        assert answer.status_code == 400 and answer.json()["error"]["param"] == field


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_waited_too_long_gets_429_with_advice(stream: bool) -> None:
    with live_server(ServerConfig()) as live:
        live.engine.fail_first = OverloadedError("the request waited too long", retry_after_s=6.2)
        answer = httpx.post(f"{live.url}/v1/completions", json={"prompt": "x", "stream": stream})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
