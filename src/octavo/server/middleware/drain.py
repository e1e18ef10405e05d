"""Drain: counts generation requests, and while the server shuts down turns new ones away with 503 and Retry-After."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.errors import EngineDeadError
from octavo.server.errors import response_of
from octavo.server.service.inflight import Inflight


class DrainMiddleware:
    """Guards POST routes, the ones that make work; health, metrics and model list answer until the end."""

    def __init__(self, app: ASGIApp, inflight: Inflight) -> None:
        self._app = app
        self._inflight = inflight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        if self._inflight.closed:
            response = response_of(EngineDeadError("the server is shutting down; try another one", code="shutting_down"))
            response.headers["connection"] = "close"
            await response(scope, receive, send)
            return
        self._inflight.enter()
        try:
            await self._app(scope, receive, send)
        finally:
            self._inflight.leave()
