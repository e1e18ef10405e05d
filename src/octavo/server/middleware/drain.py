"""Drain: counts generation requests, and turns new ones away with 503 and Retry-After while the server cannot serve them."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.errors import EngineDeadError, OctavoError
from octavo.server.context import ServerContext
from octavo.server.errors import response_of

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

    While the engine is down no body is read and no prompt encoded in vain.
    """

    def __init__(self, app: ASGIApp, context: ServerContext) -> None:
        self._app = app
        self._context = context
        self._inflight = context.inflight

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
        service = scope.setdefault("state", {})["service"] = self._context.service
        if scope["path"] in GENERATING_PATHS:
            try:
                await service.engine.check_health()
            except OctavoError as fault:
                await response_of(fault, scope["path"])(scope, receive, send)
                return
        self._inflight.enter()
        self._context.occupancy.enter(service)
        try:
            await self._app(scope, receive, send)
        finally:
            self._context.occupancy.leave(service)
            self._inflight.leave()
