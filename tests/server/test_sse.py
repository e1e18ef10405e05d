"""Streams under bad clients, driven at the ASGI level."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Message

from octavo.errors import EngineDeadError, OverloadedError
from octavo.server.sse import DONE, EventStream, JsonAnswer, event


class Client:
    """The other end: collects what is sent; may stop reading, or leave."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.left = asyncio.Event()

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.reads.wait()
        self.messages.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


class Events:
    """An event source that notes whether it was closed."""

    def __init__(self, payloads: list[bytes], error: Exception | None = None, *, endless: bool = False) -> None:
        self._payloads, self._error, self._endless = payloads, error, endless
        self.closed = False

    async def __call__(self) -> AsyncGenerator[bytes, None]:
        try:
            for payload in self._payloads:
                yield payload
            while self._endless:
                await asyncio.sleep(0)
                yield b"data: more\n\n"
            if self._error is not None:
                raise self._error
        finally:
            self.closed = True


def test_events_are_sent_as_they_are_and_the_stream_ends() -> None:
    async def scenario() -> None:
        client, events = Client(), Events([event(b"{}"), DONE])
        await EventStream(events())({}, client.receive, client.send)
        assert client.body == b"data: {}\n\ndata: [DONE]\n\n"
        assert dict(client.messages[0]["headers"])[b"content-type"].startswith(b"text/event-stream")
        assert client.messages[-1] == {"type": "http.response.body", "body": b"", "more_body": False}

    asyncio.run(scenario())


def test_error_before_the_first_event_is_left_to_the_handlers() -> None:
    async def scenario() -> None:
        client, events = Client(), Events([], OverloadedError("full"))
        with pytest.raises(OverloadedError):
            await EventStream(events())({}, client.receive, client.send)
        assert client.messages == [] and events.closed

    asyncio.run(scenario())


def test_error_after_the_first_event_is_an_event() -> None:
    async def scenario() -> None:
        client, events = Client(), Events([b"data: 1\n\n"], EngineDeadError("gone"))
        await EventStream(events())({}, client.receive, client.send)
        assert client.body.startswith(b'data: 1\n\ndata: {"error":{"message":"gone"')
        assert client.messages[-1]["more_body"] is False

    asyncio.run(scenario())


def test_client_that_stops_reading_is_dropped_after_the_deadline() -> None:
    async def scenario() -> None:
        client, events = Client(), Events([b"data: 1\n\n"], endless=True)
        stream = EventStream(events(), write_timeout_s=0.05)
        client.reads.clear()
        await asyncio.wait_for(stream({}, client.receive, client.send), 5)
        assert events.closed

    asyncio.run(scenario())


def test_client_that_reads_slowly_but_steadily_is_kept() -> None:
    async def scenario() -> None:
        client, events = Client(), Events([b"data: 1\n\n"] * 20)

        async def slow_send(message: Message) -> None:
            await asyncio.sleep(0.01)
            await client.send(message)

        await EventStream(events(), write_timeout_s=0.05)({}, client.receive, slow_send)
        assert client.body.count(b"data: 1") == 20

    asyncio.run(scenario())


def test_client_that_leaves_closes_the_events() -> None:
    async def scenario() -> None:
        client, events = Client(), Events([b"data: 1\n\n"], endless=True)
        serving = asyncio.ensure_future(EventStream(events())({}, client.receive, client.send))
        while not client.messages:
            await asyncio.sleep(0)
        client.left.set()
        await asyncio.wait_for(serving, 5)
        assert events.closed

    asyncio.run(scenario())


def test_client_that_leaves_cancels_a_whole_answer() -> None:
    async def scenario() -> None:
        client, cancelled = Client(), asyncio.Event()

        async def make() -> bytes:
            client.left.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return b""

        await asyncio.wait_for(JsonAnswer(make)({}, client.receive, client.send), 5)
        assert cancelled.is_set() and client.messages == []

    asyncio.run(scenario())
