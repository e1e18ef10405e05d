"""A client that leaves ends its request, streamed or not, in every phase."""

from __future__ import annotations

import json
import socket

import httpx
import pytest
from tests.server.conftest import LiveServer


def send_request(server: LiveServer, *, stream: bool, prompt: object = "x") -> socket.socket:
    """A socket with a request under way."""
    body = json.dumps({"prompt": prompt, "stream": stream, "max_tokens": 50}).encode()
    sock = server.connect()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    sock.sendall(head.encode() + body)
    return sock


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["x", ["x", "y", "z"]])
def test_client_that_leaves_while_waiting_aborts(server: LiveServer, stream: bool, prompt: object) -> None:
    server.call(server.engine.release.clear)
    sock = send_request(server, stream=stream, prompt=prompt)
    count = len(prompt) if isinstance(prompt, list) else 1
    server.run(server.engine.wait_until_running(count))
    sock.close()
    server.run(server.engine.wait_until_running(0))
    assert len(server.engine.aborted) == count


def test_client_that_leaves_in_the_middle_of_a_stream_aborts(server: LiveServer) -> None:
    server.call(server.engine.release.clear)
    with httpx.stream("POST", f"{server.url}/v1/completions", json={"prompt": "x", "stream": True}) as answer:
        assert next(answer.iter_lines()).startswith("data: ")
    while server.engine.running:  # the end of a client's input says nothing; what it does not take any more does
        server.call(server.engine.deliver_one)
    assert len(server.engine.aborted) == 1


def test_finished_requests_are_not_aborted(server: LiveServer) -> None:
    for stream in (False, True):
        httpx.post(f"{server.url}/v1/completions", json={"prompt": ["x", "y"], "stream": stream})
    server.run(server.engine.wait_until_running(0))
    assert server.engine.aborted == []


def test_one_prompt_that_fails_ends_its_siblings(server: LiveServer) -> None:
    server.engine.fail_after_tokens = 5
    assert httpx.post(f"{server.url}/v1/completions", json={"prompt": ["x", "y"]}).status_code == 500
    server.run(server.engine.wait_until_running(0))


def test_many_clients_that_vanish_leave_nothing_behind(server: LiveServer) -> None:
    server.call(server.engine.release.clear)
    socks = [send_request(server, stream=index % 2 == 0) for index in range(16)]
    server.run(server.engine.wait_until_running(16))
    for sock in socks:
        sock.close()
    server.run(server.engine.wait_until_running(0))
    server.call(server.engine.release.set)
    assert httpx.post(f"{server.url}/v1/completions", json={"prompt": "x", "max_tokens": 3}).status_code == 200
