"""Server-sent events, and the answers that notice a client who left.

Both response classes run the generation inside their own `__call__`, where the ASGI `receive` is at hand: a watcher waits for
`http.disconnect` and cancels the generation, whose iterator aborts the request in the engine when it is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from octavo.errors import OctavoError
from octavo.server.error_shapes import openai_shape
from octavo.server.errors import fault_of, json_response

log = logging.getLogger("octavo.server")

DONE = b"data: [DONE]\n\n"

WRITE_TIMEOUT_S = 60.0
"""A client that takes no byte for this long is treated as gone; its request is aborted."""


class ClientGone(Exception):
    """The client closed the connection, or stopped reading, before the answer was complete."""


def event(payload: bytes) -> bytes:
    """One SSE event. JSON as msgspec writes it has no raw newline, so one data line is always enough."""
    return b"data: " + payload + b"\n\n"


def named_event(name: bytes, payload: bytes) -> bytes:
    """One SSE event that says its type in a line of its own, besides what the payload says."""
    return b"event: %b\ndata: %b\n\n" % (name, payload)


def error_event(error: BaseException) -> bytes:
    """The event that ends a stream in which error was raised."""
    return event(openai_shape(fault_of(error)))


class JsonAnswer(Response):
    """Runs `make` to get the body; a client that leaves meanwhile cancels it, and nobody is answered."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, bytes]]) -> None:
        super().__init__(status_code=200)
        self._make = make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await run_while_connected(receive, self._make())
        except ClientGone:
            log.debug("client left before the answer to %s", scope.get("path"))
            return
        await json_response(body)(scope, receive, send)


class EventStream(Response):
    """Streams `events`, by default as text/event-stream.

    The head is sent with the first event, so an error before it (queue full, engine down) still gets its own HTTP status. An
    error after it is sent as the event that on_error makes of it, and the stream ends with that.
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        *,
        on_error: Callable[[BaseException], bytes] = error_event,
        content_type: bytes = b"text/event-stream; charset=utf-8",
        write_timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        super().__init__(status_code=200)
        self._events = events
        self._on_error = on_error
        self._stream_head = ((b"content-type", content_type), *_STREAM_HEADERS)
        self._write_timeout_s = write_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await run_while_connected(receive, self._stream(send))
        except ClientGone:
            log.debug("client left the stream of %s", scope.get("path"))

    async def _stream(self, send: Send) -> None:
        started = False
        writer = _DeadlineSend(send, self._write_timeout_s)
        try:
            async for payload in self._events:
                if not started:
                    started = True
                    await writer({"type": "http.response.start", "status": 200, "headers": list(self._stream_head)})
                await writer({"type": "http.response.body", "body": payload, "more_body": True})
        except Exception as error:
            if not started or isinstance(error, ClientGone):
                raise
            if not isinstance(error, OctavoError):
                log.exception("unexpected error in a stream")
            await writer({"type": "http.response.body", "body": self._on_error(error), "more_body": True})
        finally:
            writer.close()
            await self._events.aclose()
        await writer({"type": "http.response.body", "body": b"", "more_body": False})


_STREAM_HEADERS = (
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class _DeadlineSend:
    """`send` with a deadline. One timer per stream that re-arms itself: a timer per token would cost more than the token."""

    def __init__(self, send: Send, timeout_s: float) -> None:
        self._send = send
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._writing_since: float | None = None
        self._expired = False
        self._timer = self._loop.call_later(timeout_s, self._check)

    async def __call__(self, message: Message) -> None:
        self._writing_since = self._loop.time()
        try:
            await self._send(message)
        except asyncio.CancelledError:
            if self._expired:
                raise ClientGone(f"no byte was taken for {self._timeout_s} s") from None
            raise
        except OSError as error:
            raise ClientGone(str(error)) from None
        self._writing_since = None

    def _check(self) -> None:
        now = self._loop.time()
        since = self._writing_since
        if since is not None and now - since >= self._timeout_s and self._task is not None:
            self._expired = True
            self._task.cancel()
            return
        self._timer = self._loop.call_at((since if since is not None else now) + self._timeout_s, self._check)

    def close(self) -> None:
        self._timer.cancel()


async def run_while_connected(receive: Receive, work: Coroutine[Any, Any, Any]) -> Any:
    """The result of work. Raises ClientGone, after work was cancelled and has cleaned up, when the client leaves first."""
    worker = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((worker, watcher), return_when=asyncio.FIRST_COMPLETED)
        if worker.done():
            return worker.result()
        raise ClientGone("the client closed the connection")
    finally:
        watcher.cancel()
        if not worker.done():
            worker.cancel()
            await _settled(worker)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _settled(task: Awaitable[Any]) -> None:
    """Wait until a cancelled task has run its cleanup; what it raises then concerns nobody."""
    try:
        await task
    except (asyncio.CancelledError, ClientGone):
        pass
    except Exception:
        log.exception("cleanup after a client left")
