"""While the engine is down requests are refused before their body is read; more clients than open files allow get 503."""

from __future__ import annotations

import resource

import httpx
import pytest
from tests.server.conftest import LiveServer

from octavo.server import descriptors
from octavo.server.descriptors import ConnectionLimit, limit, raise_descriptor_limit


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


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
        assert raise_descriptor_limit() == limit() > 256 or hard <= 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
