"""Access log: one line per finished request with status, bytes and time. Never the body, never the key."""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("octavo.access")

_QUIET_PATHS = frozenset({"/health", "/ready", "/metrics"})
"""Polled every few seconds by machines; their lines would hide the others. Logged at debug."""


class AccessLogMiddleware:
    """Logs `METHOD path status bytes milliseconds id` when the answer is complete or the client has left (status 499)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 499
        size_bytes = 0

        async def counted_send(message: Message) -> None:
            nonlocal status, size_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                size_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, counted_send)
        finally:
            level = logging.DEBUG if scope["path"] in _QUIET_PATHS else logging.INFO
            if log.isEnabledFor(level):
                self._log(level, scope, status, size_bytes, time.perf_counter() - start)

    def _log(self, level: int, scope: Scope, status: int, size_bytes: int, elapsed_s: float) -> None:
        state = scope.get("state", {})
        path, request_id = scope["path"].encode("unicode_escape").decode(), state.get("http_request_id", "-")
        facts = {
            "method": scope["method"],
            "path": path,
            "status": status,
            "size_bytes": size_bytes,
            "duration_ms": round(elapsed_s * 1e3, 1),
            "request_id": request_id,
        }
        key = state.get("api_key")
        if key is not None:
            facts["api_key_name"] = key.name
        text, values = (
            "%s %s %d %d bytes %.1f ms id=%s",
            (scope["method"], path, status, size_bytes, elapsed_s * 1e3, request_id),
        )
        log.log(level, text, *values, extra={"facts": facts})
