"""Shutdown: new requests get 503, running ones finish, what is late is aborted."""

from __future__ import annotations

import threading

import httpx
import pytest
from tests.fakes_server import ANSWER
from tests.server.conftest import LiveServer

from octavo.server.shutdown import Shutdown


def make_shutdown(server: LiveServer, timeout_s: float) -> Shutdown:
    def stop(at_once: bool) -> None:
        server.server.should_exit = True
        server.server.force_exit = at_once

    return Shutdown(server.app.state.context, timeout_s, stop)


class Running:
    """A request under way in a thread of its own."""

    def __init__(self, server: LiveServer, *, stream: bool) -> None:
        self.answer: httpx.Response | None = None
        self._url = f"{server.url}/v1/completions"
        self._body = {"prompt": "x", "stream": stream, "max_tokens": 200}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        server.run(server.engine.wait_until_running(1))

    def _run(self) -> None:
        self.answer = httpx.post(self._url, json=self._body, timeout=15)

    def result(self) -> httpx.Response:
        self._thread.join(15)
        assert self.answer is not None
        return self.answer


def test_running_requests_finish_while_new_ones_are_turned_away(server: LiveServer) -> None:
    server.call(server.engine.release.clear)
    running = Running(server, stream=False)
    server.call(make_shutdown(server, 30.0).on_signal)
    refused = httpx.post(f"{server.url}/v1/completions", json={"prompt": "y"})
    assert refused.status_code == 503 and refused.headers["retry-after"] == "1"
    assert refused.json()["error"]["code"] == "shutting_down"
    assert httpx.get(f"{server.url}/ready").status_code == 503
    assert httpx.get(f"{server.url}/health").status_code == 200
    server.call(server.engine.release.set)
    assert running.result().json()["choices"][0]["text"] == ANSWER
    server.join()
    assert server.engine.aborted == [] and server.engine.was_shut_down


@pytest.mark.parametrize("stream", [False, True])
def test_late_requests_are_aborted_with_a_clear_error(server: LiveServer, stream: bool) -> None:
    server.call(server.engine.release.clear)
    running = Running(server, stream=stream)
    server.call(make_shutdown(server, 0.0).on_signal)
    answer = running.result()
    if stream:
        assert answer.status_code == 200 and "request_aborted" in answer.text and "[DONE]" not in answer.text
    else:
        assert answer.status_code == 503 and answer.json()["error"]["code"] == "request_aborted"
    server.join()


def test_idle_server_stops_at_once(server: LiveServer) -> None:
    assert httpx.get(f"{server.url}/ready").status_code == 200
    server.call(make_shutdown(server, 30.0).on_signal)
    server.join()


def test_second_signal_does_not_wait(server: LiveServer) -> None:
    server.call(server.engine.release.clear)
    body = b'{"prompt": "x"}'
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n"
    with server.connect() as sock:
        sock.sendall(head + body)
        server.run(server.engine.wait_until_running(1))
        shutdown = make_shutdown(server, 600.0)
        server.call(shutdown.on_signal)
        server.call(shutdown.on_signal)
        server.join()
