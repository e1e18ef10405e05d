"""X-Request-Id: the client's own id where it is well formed, else a fresh one, echoed in the answer."""

from __future__ import annotations

import re
import secrets

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_WELL_FORMED = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


class RequestIdMiddleware:
    """Puts the id into `scope["state"]["http_request_id"]` for the access log and into the answer's headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _given_id(scope) or secrets.token_hex(8).encode()
        scope.setdefault("state", {})["http_request_id"] = request_id.decode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            await send(message)

        await self._app(scope, receive, send_with_id)


def _given_id(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _WELL_FORMED.fullmatch(value):
            return bytes(value)
    return None
