"""Drain: counts generation requests, and turns new ones away with 503 and Retry-After while the server cannot serve them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.errors import EngineDeadError, OctavoError
from octavo.server.errors import response_of
from octavo.server.service.inflight import Inflight

GENERATING_PATHS = frozenset(
    {
        *("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"),
        *("/v1/embeddings", "/v1/rerank", "/v1/score"),
        *("/api/chat", "/api/generate", "/api/embed", "/api/embeddings"),
    }
)
"""They need the engine core. The others that make work, such as /tokenize, do without."""


class DrainMiddleware:
    """Guards POST routes, the ones that make work; health, metrics and model list answer until the end.

    check_health  raises OctavoError while the engine is down; then no body is read and no prompt encoded in vain
    """

    def __init__(self, app: ASGIApp, inflight: Inflight, check_health: Callable[[], Awaitable[None]]) -> None:
        self._app = app
        self._inflight = inflight
        self._check_health = check_health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        if self._inflight.closed:
            error = EngineDeadError("the server is shutting down; try another one", code="shutting_down")
            response = response_of(error, scope["path"])
            response.headers["connection"] = "close"
            await response(scope, receive, send)
            return
        if scope["path"] in GENERATING_PATHS:
            try:
                await self._check_health()
            except OctavoError as fault:
                await response_of(fault, scope["path"])(scope, receive, send)
                return
        self._inflight.enter()
        try:
            await self._app(scope, receive, send)
        finally:
            self._inflight.leave()
