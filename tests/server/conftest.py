"""Fixtures of the server tests: a fake engine behind the real app on a real socket."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import httpx
import openai
import pytest
import uvicorn
from fastapi import FastAPI
from tests.fakes_server import FakeEngine

from octavo.config.server import ServerConfig
from octavo.server.app import create_app
from octavo.server.http_protocol import BoundedHttpProtocol
from octavo.server.listener import bind

MODEL = "fake-model"
MAX_BODY_SIZE = 2**16

T = TypeVar("T")


class LiveServer:
    """The app on 127.0.0.1, its event loop in a thread of its own."""

    def __init__(self, engine: FakeEngine, app: FastAPI, http: Any = BoundedHttpProtocol) -> None:
        self.engine = engine
        self.app = app
        self._sock = bind("127.0.0.1", 0)
        self._sock.listen()  # clients may connect from now on, and wait until the loop runs
        self.port: int = self._sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        config = uvicorn.Config(
            app, http=http, ws="none", access_log=False, log_config=None, timeout_graceful_shutdown=5
        )
        self.server = uvicorn.Server(config)
        self._loop: asyncio.AbstractEventLoop
        self._runs = threading.Event()
        self._thread = threading.Thread(target=self._run, name="server")

    def _run(self) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self._runs.set()
            await self.server.serve(sockets=[self._sock])

        asyncio.run(serve())

    def start(self) -> None:
        self._thread.start()
        assert self._runs.wait(15)

    def join(self) -> None:
        """Wait until the server has ended by itself."""
        self._thread.join(15)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        self.server.should_exit = True
        if self._thread.is_alive():
            self.call(lambda: self.engine.release.set())
        self.join()

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the server's loop."""

        async def wrapped() -> T:
            return function()

        return self.run(wrapped())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(15)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=15)


@contextmanager
def live_server(
    config: ServerConfig,
    scheduler_policy: str = "fcfs",
    model_names: Sequence[str] = (MODEL,),
    http: Any = BoundedHttpProtocol,
) -> Iterator[LiveServer]:
    engine = FakeEngine()
    scheduler = replace(engine.resolved_config.scheduler, scheduler_policy=scheduler_policy)
    engine.resolved_config = replace(engine.resolved_config, scheduler=scheduler)
    server = LiveServer(engine, create_app(engine, config, model_names=model_names), http)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def server() -> Iterator[LiveServer]:
    with live_server(ServerConfig(max_body_size=MAX_BODY_SIZE)) as live:
        yield live


@pytest.fixture
def http(server: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=15) as client:
        yield client


@pytest.fixture
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=15) as made:
        yield made
