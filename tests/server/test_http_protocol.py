"""Connections: bounded heads, malformed requests, keep-alive."""

from __future__ import annotations

import gc
import json
import socket
from contextlib import suppress

import pytest
from starlette.requests import Request
from tests.server.conftest import MAX_BODY_SIZE, LiveServer

from octavo.server import http_protocol, json_body
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


BODY = b'{"prompt": "x", "max_tokens": 4}'


def post(headers: bytes = b"", *, body: bytes = BODY, version: bytes = b"1.1", framed: bytes | None = None) -> bytes:
    """A completion request; framed: the body with its framing header, where it is not Content-Length."""
    framed = b"content-length: %d\r\n\r\n" % len(body) + body if framed is None else framed
    return b"POST /v1/completions HTTP/%b\r\nhost: x\r\n%b%b" % (version, headers, framed)


CHUNKED = b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
H2C = b"connection: Upgrade, HTTP2-Settings, close\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAA\r\n"


@pytest.mark.parametrize(
    "raw",
    [
        post(H2C),
        post(H2C, framed=CHUNKED),
        post(b"connection: close, upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"),
        b"GET /health HTTP/1.1\r\nhost: x\r\n" + H2C + b"\r\n",
        b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n" + post(b"connection: close\r\n"),
    ],
)
def test_offers_to_upgrade_are_declined_and_the_request_is_served(server: LiveServer, raw: bytes) -> None:
    answer = exchange(server, raw)
    assert answer.startswith(b"HTTP/1.1 200") and answer.count(b"HTTP/1.1 ") == raw.count(b"HTTP/1.1\r\n")


def test_an_upgrade_whose_body_comes_in_pieces_is_served(server: LiveServer) -> None:
    raw = post(H2C, framed=CHUNKED)
    with server.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for position in range(len(raw)):
            sock.sendall(raw[position : position + 1])
        assert sock.recv(65536).startswith(b"HTTP/1.1 200")


def test_this_is_no_proxy(server: LiveServer) -> None:
    answer = exchange(server, b"CONNECT example.org:443 HTTP/1.1\r\nhost: x\r\n\r\n")
    assert status_and_code(answer) == (b"405", "method_not_allowed")


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_an_http10_stream_is_raw_and_ends_with_the_connection(server: LiveServer, path: str) -> None:
    body = (
        b'{"prompt": "x", "stream": true}'
        if path == "completions"
        else b'{"messages": [{"role": "user", "content": "x"}], "stream": true}'
    )
    raw = post(b"connection: keep-alive\r\n", body=body, version=b"1.0").replace(b"/v1/completions", b"/v1/" + path.encode())
    head, _, rest = exchange(server, raw).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head and b"connection: close" in head
    assert rest.startswith(b"data: {") and rest.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("raw", [post(version=b"1.0"), b"GET /metrics HTTP/1.0\r\n\r\n", b"HEAD /health HTTP/1.0\r\n\r\n"])
def test_an_http10_answer_of_known_length_says_so(server: LiveServer, raw: bytes) -> None:
    head, _, rest = exchange(server, raw).partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    assert b" 200 OK" in head and (length == len(rest) or raw.startswith(b"HEAD"))


@pytest.mark.parametrize(
    "raw",
    [
        post(),
        post(framed=CHUNKED),
        post(version=b"1.0"),
        post(body=b'{"prompt": "x", "stream": true}'),
        b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
)
def test_the_end_of_input_does_not_end_the_request(server: LiveServer, raw: bytes) -> None:
    with server.connect() as sock:
        sock.sendall(raw)
        sock.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200") and server.engine.aborted == []


def test_all_pipelined_requests_before_the_end_of_input_are_answered(server: LiveServer) -> None:
    with server.connect() as sock:
        sock.sendall(post() * 3)
        sock.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    assert answer.count(b"HTTP/1.1 200") == 3


def test_the_end_of_input_within_a_request_ends_it(server: LiveServer) -> None:
    with server.connect() as sock:
        sock.sendall(post()[:-5])
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(65536) == b""
    assert server.engine.requests == []


def test_a_client_that_waits_after_its_end_of_input_is_asked_and_then_answered(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "PROBE_DELAYS_S", (0.01, 0.01))
    server.call(server.engine.release.clear)
    with server.connect() as sock:
        sock.sendall(post(b"connection: close\r\n"))
        sock.shutdown(socket.SHUT_WR)
        received = b""
        while received.count(b"HTTP/1.1 100 Continue\r\n\r\n") < 2:
            received += sock.recv(65536)
        server.call(server.engine.release.set)
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200") and server.engine.aborted == []


@pytest.mark.parametrize(
    "framing", [b"content-length: %d\r\n\r\n" % (40 * MAX_BODY_SIZE), b"transfer-encoding: chunked\r\n\r\n"]
)
def test_413_reaches_a_client_that_sends_all_and_closes(server: LiveServer, framing: bytes) -> None:
    rest = b"x" * (40 * MAX_BODY_SIZE)
    if b"chunked" in framing:
        rest = b"%x\r\n%b\r\n0\r\n\r\n" % (len(rest), rest)
    assert status_and_code(exchange(server, post(b"connection: close\r\n", framed=framing + rest))) == (
        b"413",
        "body_too_large",
    )


@pytest.mark.parametrize("headers", [b"", b"connection: close\r\n"])
@pytest.mark.parametrize("path", [b"/v1/completions", b"/nowhere", b"/health"])
def test_a_body_that_trickles_after_its_answer_is_cut_off(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch, headers: bytes, path: bytes
) -> None:
    monkeypatch.setattr(http_protocol, "BODY_REST_S", 0.2)
    monkeypatch.setattr(json_body, "BODY_TIMEOUT_S", 0.05)
    raw = post(headers, framed=b"content-length: 9999\r\n\r\n").replace(b"/v1/completions", path)
    received = b""
    with server.connect() as sock:
        sock.sendall(raw)
        sock.settimeout(0.01)
        with suppress(OSError):
            while True:
                sock.sendall(b" ")
                with suppress(TimeoutError):
                    if not (data := sock.recv(65536)) and not headers:
                        break
                    received += data
    assert received.startswith(b"HTTP/1.1 4")


def test_the_rest_of_a_body_may_come_after_the_answer_and_the_connection_lives_on(server: LiveServer) -> None:
    with server.connect() as sock:
        sock.sendall(post(framed=b"content-length: 20\r\n\r\n").replace(b"/v1/completions", b"/nowhere"))
        refused = b""
        while not refused.endswith(b"}}"):
            refused += sock.recv(65536)
        assert refused.startswith(b"HTTP/1.1 404")
        sock.sendall(b"x" * 20 + post())
        assert sock.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "raw",
    [
        b"PATCH /v1/models HTTP/1.1\r\nhost: x\r\ntransfer-encoding: identity\r\n\r\n",
        b"POST /nowhere HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /health HTTP/1.1\r\nhost: x\r\n\r\nno http\r\n\r\n",
        b"POST /nowhere HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 9\r\n\r\n{}",
    ],
)
def test_a_request_whose_rest_is_refused_while_it_is_answered_ends_in_silence(
    server: LiveServer, caplog: pytest.LogCaptureFixture, raw: bytes
) -> None:
    assert exchange(server, raw).startswith(b"HTTP/1.1 4")
    assert exchange(server, b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").startswith(b"HTTP/1.1 200")
    assert not caplog.records
