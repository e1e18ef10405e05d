"""Authentication: without the key no route answers but /health."""

from __future__ import annotations

import hashlib
import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.errors import AuthenticationError
from octavo.server.errors import response_of

PUBLIC_PATHS = frozenset({"/health"})
"""The whole allow-list. Everything else, unknown paths included, is denied first and routed second."""


class AuthMiddleware:
    """Checks 'Authorization: Bearer KEY' in constant time. Digests are compared, so not even the key's length leaks."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self._app = app
        self._digest = hashlib.sha256(api_key.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or (scope["type"] == "http" and scope["path"] in PUBLIC_PATHS):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            given = [value for name, value in scope["headers"] if name == b"authorization"]
            if len(given) == 1 and self._is_right(given[0]):
                await self._app(scope, receive, send)
            else:
                message = "the API key is wrong" if given else "no API key; send the header 'Authorization: Bearer KEY'"
                await response_of(AuthenticationError(message))(scope, receive, send)

    def _is_right(self, header: bytes) -> bool:
        scheme, _, key = header.partition(b" ")
        matches = hmac.compare_digest(hashlib.sha256(key.strip()).digest(), self._digest)
        return matches and scheme.lower() == b"bearer"
