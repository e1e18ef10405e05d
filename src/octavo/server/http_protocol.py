"""HTTP/1.1 connections on uvicorn's httptools protocol: bounded heads, patient ends, and requests as real clients send them.

The parser itself puts no limit on the size or the duration of a request head (llhttp leaves both to its user), so one client
could fill the memory with header bytes, or hold a connection open by sending one byte a minute. uvicorn offers no other seam
than its protocol class, hence the inheritance.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from octavo.server.descriptors import ConnectionLimit
from octavo.server.error_shapes import Fault, openai_shape

MAX_HEAD_BYTES = 64 * 1024
"""Request line and headers. Browsers and proxies stay below 16 KiB; nginx and Apache allow 32 and 8 KiB."""

HEAD_TIMEOUT_S = 20.0

LINGER_S = 1.0
"""How long a refused connection is read, and what it sends thrown away, before it is closed."""

BODY_REST_S = 20.0
"""How long the rest of a body is read and thrown away once its answer is out. A client that sends all before it reads gets its
answer; one that sends a byte a second does not hold the connection."""

PROBE_DELAYS_S = (1.0, 0.2, 4.0)
"""When a client that has ended its input is asked whether it is still there: an interim answer, which one that only stopped
sending skips, and one that has gone answers with a reset. Few, as some clients count them."""

_PROBE = b"HTTP/1.1 100 Continue\r\n\r\n"
_UPGRADE_HEADERS = (b"upgrade", b"http2-settings")


class BoundedHttpProtocol(HttpToolsProtocol):
    """Refuses heads of more than MAX_HEAD_BYTES with 431, slow ones with 408, malformed ones with 400, in the one error shape.

    Offers to upgrade are declined and the request is served. Its end of input does not end a request that is complete.
    HTTP/1.0 answers of unknown length are raw and end with the connection.
    """

    def __init__(self, *args: Any, limit: ConnectionLimit | None = None, **kwargs: Any) -> None:
        """limit: connections beyond it get 503, so that open files are left for the server's own needs."""
        super().__init__(*args, **kwargs)
        self._limit = limit
        self._in_head = False
        self._head_bytes = 0
        self._is_refused = False
        self.has_ended = False
        """Nothing may be written any more: a request that is still being answered, or came behind, has nobody to read it."""
        self._head_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None
        """Of the rest of a body, or of the next probe."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._limit is not None and self._limit.is_exceeded(len(self.connections)):
            self._refuse(503, "the server has as many connections as it can hold; try again later", "too_many_connections")
            return
        self._start_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        self._stop_end_timer()
        super().connection_lost(exc)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """True keeps the connection open for the answer to a request that came whole."""
        cycle = self.cycle
        if self._is_refused or cycle is None or cycle.response_complete or cycle.more_body:
            return None
        if self.transport.get_extra_info("sslcontext") is not None:
            return None  # TLS knows no half-closed connections
        cycle.keep_alive = False
        if cycle.scope["http_version"] != "1.0":
            self._end_timer = self.loop.call_later(PROBE_DELAYS_S[0], self._probe, cycle, 0)
        return True

    def _probe(self, cycle: RequestResponseCycle, number: int) -> None:
        """Ask whether the client is there. Once the answer has begun, its own bytes ask."""
        if cycle.response_started or self.pipeline or self.has_ended or self.transport.is_closing():
            return
        self.transport.write(_PROBE)
        if number + 1 < len(PROBE_DELAYS_S):
            self._end_timer = self.loop.call_later(PROBE_DELAYS_S[number + 1], self._probe, cycle, number + 1)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._start_head()

    def on_headers_complete(self) -> None:
        self._end_head()
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD_BYTES:
            self._head_bytes = MAX_HEAD_BYTES + 1
            raise ValueError("head too large")
        if not self.parser.should_upgrade():  # else the parser stops here, and _decline_upgrade takes over
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        if self.cycle.response_complete:
            self.cycle.more_body = False
            self._stop_end_timer()
            if not self.cycle.keep_alive:
                self.transport.close()

    def on_body(self, body: bytes) -> None:
        if not self.parser.should_upgrade():
            super().on_body(body)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse_head()
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse_head()

    def _decline_upgrade(self, rest: bytes) -> None:
        """Serve the request as if it had offered nothing: its head without the offer, and all that follows, to a new parser.

        The JDK's HTTP client offers h2c with every request and goes on in HTTP/1.1 with whoever does not take it up.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(405, "CONNECT is not allowed; this server is no proxy", "method_not_allowed")
            return
        lines = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                kept = [word for word in value.split(b",") if word.strip().lower() not in _UPGRADE_HEADERS]
                lines += [b"connection:" + b",".join(kept)] if kept else []
            elif name not in _UPGRADE_HEADERS:
                lines.append(name + b": " + value)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.transport = _PatientTransport(self, cycle)  # type: ignore[assignment]
        if cycle.scope["http_version"] == "1.0":
            app = _RawAnswer(app, cycle)
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self._stop_end_timer()
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body and not self.transport.is_closing():
            self._unset_keepalive_if_required()
            self._end_timer = self.loop.call_later(BODY_REST_S, self.transport.close)

    def _refuse_head(self) -> None:
        """Answer what the parser refuses, our own ValueError included."""
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(431, f"the request head is larger than {MAX_HEAD_BYTES} bytes", "head_too_large")
        else:
            self._refuse(400, "this is not a valid HTTP/1.1 request", "invalid_http")

    def _refuse(self, status: int, message: str, code: str) -> None:
        self._end_head()
        if self._is_refused or self.has_ended or self.transport.is_closing():
            return
        self._is_refused = True
        body = openai_shape(Fault(status, message, "invalid_request_error", None, code))
        later = b"retry-after: 1\r\n" if status == 503 else b""
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n%b\r\n" % (len(body), later)
        self.transport.write(STATUS_LINE[status] + head + body)
        # Closing now, with bytes of the client unread, would reset the connection and take the answer with it.
        self.end_output()
        self.loop.call_later(LINGER_S, self.transport.close)

    def end_output(self) -> None:
        """Close the writing side alone."""
        if not self.has_ended and self.transport.can_write_eof():
            self.has_ended = True
            self.transport.write_eof()

    def _start_head(self) -> None:
        self._end_head()
        self._in_head = True
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(
            HEAD_TIMEOUT_S, self._refuse, 408, "the request head took too long", "head_timeout"
        )

    def _end_head(self) -> None:
        self._in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_end_timer(self) -> None:
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None


class _PatientTransport:
    """The transport as one answer sees it: closing it waits for the rest of the request's body.

    Closing with bytes of the client unread would reset the connection, and take an answer with it that the client has not read
    yet: a 413 or a 401 comes before the body does.
    """

    def __init__(self, protocol: BoundedHttpProtocol, cycle: RequestResponseCycle) -> None:
        self._protocol = protocol
        self._transport = protocol.transport
        self._cycle = cycle
        self.is_closing = self._transport.is_closing

    def write(self, data: bytes) -> None:
        if not self._protocol.has_ended:
            self._transport.write(data)

    def close(self) -> None:
        if not (self._cycle.response_complete and self._cycle.more_body):
            self._transport.close()
        else:
            self._protocol.end_output()


class _RawAnswer:
    """Frames an HTTP/1.0 answer: HTTP/1.0 knows no chunks, so a body of unknown length ends with the connection."""

    def __init__(self, app: ASGIApp, cycle: RequestResponseCycle) -> None:
        self._app = app
        self._cycle = cycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        cycle, is_raw = self._cycle, False

        async def raw_send(message: Message) -> None:
            nonlocal is_raw
            if message["type"] == "http.response.start":
                is_raw = all(name != b"content-length" for name, _ in message.get("headers", ()))
                cycle.chunked_encoding = False if is_raw else None
            elif is_raw:
                # uvicorn counts a body of announced length down; each piece announces itself.
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await self._app(scope, receive, raw_send)
