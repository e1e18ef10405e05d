"""Quota: requests per minute and day, and at the same time, of the key that asks; the x-ratelimit headers of its answers."""

from __future__ import annotations

import math
from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.engine.frontend.ledger import Ledger, ShedReason
from octavo.errors import OctavoError, RateLimitError
from octavo.server.access.key_file import ApiKey
from octavo.server.access.usage import UsageStore
from octavo.server.context import ServerContext
from octavo.server.errors import response_of

CONCURRENCY_RETRY_S = 1.0
LIMIT_HEADERS = tuple(
    f"x-ratelimit-{name}-{kind}" for name in ("limit", "remaining", "reset") for kind in ("requests", "tokens")
)


class QuotaMiddleware:
    """Guards POST routes, the ones that make work. Tokens are reserved where the engine is asked (access.metered)."""

    def __init__(self, app: ASGIApp, context: ServerContext, usage: UsageStore) -> None:
        self._app = app
        self._context = context
        self._usage = usage
        self._running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key: ApiKey | None = scope.get("state", {}).get("api_key")
        if scope["type"] != "http" or scope["method"] != "POST" or key is None:
            await self._app(scope, receive, send)
            return

        async def send_with_limits(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._headers(key)]
            await send(message)

        try:
            self._enter(key)
        except OctavoError as error:
            await response_of(error, scope["path"])(scope, receive, send_with_limits)
            return
        try:
            await self._app(scope, receive, send_with_limits)
        finally:
            self._running[key.name] -= 1

    @property
    def _ledger(self) -> Ledger:
        return self._context.service.engine.ledger

    def _enter(self, key: ApiKey) -> None:
        most = key.limits.max_concurrent_requests
        if most is not None and self._running[key.name] >= most:
            self._ledger.shed(key.tenant, ShedReason.KEY_CONCURRENCY)
            raise RateLimitError(
                f"this API key runs {most} requests already, as many as it may at the same time",
                retry_after_s=CONCURRENCY_RETRY_S,
            )
        try:
            self._usage.take_request(key.name, key.limits)
        except RateLimitError:
            self._ledger.shed(key.tenant, ShedReason.KEY_REQUESTS)
            raise
        self._running[key.name] += 1

    def _headers(self, key: ApiKey) -> list[tuple[bytes, bytes]]:
        headers = []
        for kind, left in self._usage.remaining(key.name, key.limits).items():
            values = {"limit": str(left.limit), "remaining": str(left.left), "reset": duration(left.reset_s)}
            headers += [(f"x-ratelimit-{name}-{kind}".encode(), value.encode()) for name, value in values.items()]
        return headers


def duration(seconds: float) -> str:
    """As OpenAI writes it: 120ms, 6s, 1m30s, 2h0m0s."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1e3)}ms"
    whole = math.ceil(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + f"{rest}s"
