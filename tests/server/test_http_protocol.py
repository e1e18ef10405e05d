"""Connections: bounded heads, malformed requests, keep-alive."""

from __future__ import annotations

import gc
import json

import pytest
from starlette.requests import Request
from tests.server.conftest import MAX_BODY_SIZE, LiveServer

from octavo.server import http_protocol
from octavo.server.body_budget import BODIES_IN_BUDGET
from octavo.server.http_protocol import MAX_HEAD_BYTES


def exchange(server: LiveServer, raw: bytes) -> bytes:
    """Send raw bytes; everything that comes back until the server closes."""
    with server.connect() as sock:
        sock.sendall(raw)
        received = b""
        while data := sock.recv(65536):
            received += data
    return received


def status_and_code(answer: bytes) -> tuple[bytes, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b" ")[1], json.loads(body)["error"]["code"]


@pytest.mark.parametrize(
    "raw", [b"\x16\x03\x01\x02\x00hello\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"FOO / HTTP/1.1\r\nhost\r\n\r\n"]
)
def test_what_is_not_http_gets_400_in_the_error_shape(server: LiveServer, raw: bytes) -> None:
    assert status_and_code(exchange(server, raw)) == (b"400", "invalid_http")


@pytest.mark.parametrize(
    "filler",
    [
        b"x-a: " + b"a" * MAX_HEAD_BYTES + b"\r\n",
        b"x-a: b\r\n" * (MAX_HEAD_BYTES // 4),
        b"x-endless: " + b"a" * 4 * MAX_HEAD_BYTES,
    ],
)
def test_oversized_heads_get_431(server: LiveServer, filler: bytes) -> None:
    raw = b"GET /health HTTP/1.1\r\nhost: x\r\n" + filler + (b"\r\n" if filler.endswith(b"\n") else b"")
    assert status_and_code(exchange(server, raw)) == (b"431", "head_too_large")


def test_slow_heads_get_408(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT_S", 0.05)
    assert status_and_code(exchange(server, b"GET /health HTTP/1.1\r\nhost:")) == (b"408", "head_timeout")


def test_a_connection_serves_several_requests(server: LiveServer) -> None:
    request = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    last = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    assert exchange(server, request * 3 + last).count(b"HTTP/1.1 200") == 4


def test_large_bodies_on_their_way_are_bounded_and_given_back(server: LiveServer) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % MAX_BODY_SIZE
    unfinished = b'{"prompt": "' + b"x" * (MAX_BODY_SIZE - 100)
    bodies = server.app.state.context.bodies
    socks = [server.connect() for _ in range(BODIES_IN_BUDGET)]
    for number, sock in enumerate(socks, start=1):
        sock.sendall(head + unfinished)
        while server.call(lambda: bodies.held) < number * len(unfinished):
            pass
    assert status_and_code(exchange(server, head + unfinished)) == (b"429", "overloaded")
    for sock in socks:
        sock.close()
    while server.call(lambda: bodies.held):
        pass
    assert exchange(server, b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("stream", [False, True])
def test_a_running_request_keeps_nothing_of_its_body(server: LiveServer, stream: bool) -> None:
    server.call(server.engine.release.clear)
    body = json.dumps({"prompt": "x", "stream": stream, "metadata": {"note": "x" * 50_000}}).encode()
    with server.connect() as sock:
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        server.run(server.engine.wait_until_running(1))
        assert server.app.state.context.bodies.held == 0
        assert not [o for o in gc.get_objects() if isinstance(o, Request) and hasattr(o, "_body")]
