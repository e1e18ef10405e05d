"""While the engine is down requests are refused before their body is read; more clients than open files allow get 503."""

from __future__ import annotations

import resource
from functools import partial

import httpx
import pytest
from tests.server.conftest import LiveServer, live_server

from octavo.config.server import ServerConfig
from octavo.engine.frontend.supervisor import ModelChangedError
from octavo.server import descriptors
from octavo.server.descriptors import ConnectionLimit, limit, raise_descriptor_limit
from octavo.server.http_protocol import BoundedHttpProtocol


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/completions/"])
def test_no_body_is_read_while_the_engine_is_down(path: str, server: LiveServer) -> None:
    server.engine.is_dead = True
    with server.connect() as sock:
        sock.sendall(f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n".encode())
        head = sock.recv(4096).decode().lower()  # comes although no byte of the body has been sent
    assert head.startswith("http/1.1 503") and "retry-after: 1" in head
    assert httpx.get(f"{server.url}/health").status_code == 503
    assert httpx.get(f"{server.url}/v1/models").status_code == 200
    assert httpx.post(f"{server.url}/tokenize", json={"prompt": "x"}).status_code == 200


def test_clients_beyond_the_limit_are_one_line_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    limited = ConnectionLimit()
    assert 0 < limited.most < limit()
    limited.most = 2
    # Not caplog: whether the logger passes lines on to it depends on which tests have set up logging before.
    lines: list[str] = []
    monkeypatch.setattr(descriptors.log, "warning", lambda text, *values: lines.append(text % values))
    assert [limited.is_exceeded(count) for count in (1, 2, 3, 4)] == [False, False, True, True]
    assert len(lines) == 1 and "ulimit -n" in lines[0]


def test_a_client_too_many_gets_503_and_one_that_leaves_makes_room() -> None:
    limited = ConnectionLimit()
    limited.most = 2
    with live_server(ServerConfig(), http=partial(BoundedHttpProtocol, limit=limited)) as server:
        first, second = server.connect(), server.connect()
        for sock in (first, second):  # both are served, so both are counted
            sock.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
            assert sock.recv(4096).startswith(b"HTTP/1.1 200")
        answer = httpx.get(f"{server.url}/health")
        assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
        assert answer.json()["error"]["code"] == "too_many_connections"
        first.close()
        while httpx.get(f"{server.url}/health").status_code == 503:
            pass
        second.close()


@pytest.mark.parametrize(("body", "closed"), [({}, "chat_template"), ({"response_format": {"type": "json_object"}}, "forms")])
def test_what_cannot_be_worked_on_now_may_be_sent_again(body: dict[str, object], closed: str, server: LiveServer) -> None:
    getattr(server.engine, closed).close()
    messages = [{"role": "user", "content": "x"}]
    answer = httpx.post(f"{server.url}/v1/chat/completions", json={"messages": messages, **body})
    assert (answer.status_code, answer.headers["retry-after"], answer.json()["error"]["code"]) == (503, "1", "busy")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_changed_files_of_the_model_are_told_to_clients(path: str, server: LiveServer) -> None:
    server.engine.dead_error = ModelChangedError()
    answer = httpx.post(f"{server.url}{path}", json={"prompt": "x"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (503, "model_changed") and "put the old ones back" in error["message"]


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
        assert raise_descriptor_limit() == limit() > 256 or hard <= 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
