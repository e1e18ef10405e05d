"""HTTP/1.1 connections with bounded request heads, on uvicorn's httptools protocol.

The parser itself puts no limit on the size or the duration of a request head (llhttp leaves both to its user), so one client
could fill the memory with header bytes, or hold a connection open by sending one byte a minute.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from octavo.server.descriptors import ConnectionLimit
from octavo.server.errors import error_body

MAX_HEAD_BYTES = 64 * 1024
"""Request line and headers. Browsers and proxies stay below 16 KiB; nginx and Apache allow 32 and 8 KiB."""

HEAD_TIMEOUT_S = 20.0

LINGER_S = 1.0
"""How long a refused connection is read, and what it sends thrown away, before it is closed."""


class BoundedHttpProtocol(HttpToolsProtocol):
    """Refuses heads of more than MAX_HEAD_BYTES with 431, slow ones with 408, malformed ones with 400, in the one error shape.

    uvicorn offers no other seam than its protocol class, hence the inheritance.
    """

    def __init__(self, *args: Any, limit: ConnectionLimit | None = None, **kwargs: Any) -> None:
        """limit: connections beyond it get 503, so that open files are left for the server's own needs."""
        super().__init__(*args, **kwargs)
        self._limit = limit
        self._in_head = False
        self._head_bytes = 0
        self._is_refused = False
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._limit is not None and self._limit.is_exceeded(len(self.connections)):
            self._refuse(503, "the server has as many connections as it can hold; try again later", "too_many_connections")
            return
        self._start_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._start_head()

    def on_headers_complete(self) -> None:
        self._end_head()
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD_BYTES:
            self._head_bytes = MAX_HEAD_BYTES + 1
            raise ValueError("head too large")
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response("")

    def send_400_response(self, msg: str) -> None:
        """Called by data_received for whatever the parser refuses, our own ValueError included."""
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(431, f"the request head is larger than {MAX_HEAD_BYTES} bytes", "head_too_large")
        else:
            self._refuse(400, "this is not a valid HTTP/1.1 request", "invalid_http")

    def _refuse(self, status: int, message: str, code: str) -> None:
        self._end_head()
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        body = error_body(message, "invalid_request_error", None, code)
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        # Closing now, with bytes of the client unread, would reset the connection and take the answer with it.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)

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
