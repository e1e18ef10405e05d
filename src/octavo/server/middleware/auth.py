"""Authentication: without the key no route answers but /health. The /admin routes have a key of their own, or are closed."""

from __future__ import annotations

import hashlib
import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.errors import AuthenticationError, OctavoError, PermissionDeniedError
from octavo.server.errors import response_of

PUBLIC_PATHS = frozenset({"/health"})
"""The whole allow-list. Everything else, unknown paths included, is denied first and routed second."""

ADMIN_PREFIX = "/admin"


class AuthMiddleware:
    """Checks 'Authorization: Bearer KEY' in constant time. Digests are compared, so not even the key's length leaks.

    api_key        opens all but the admin routes; None opens these to everybody
    admin_api_key  opens the admin routes, and nothing else; None closes them to everybody
    """

    def __init__(self, app: ASGIApp, api_key: str | None, admin_api_key: str | None) -> None:
        self._app = app
        self._digest = None if api_key is None else _digest(api_key.encode())
        self._admin_digest = None if admin_api_key is None else _digest(admin_api_key.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            error = self._refusal(scope)
            await (self._app if error is None else response_of(error))(scope, receive, send)

    def _refusal(self, scope: Scope) -> OctavoError | None:
        """Why the request must not be routed; None: it may."""
        path, digest = scope["path"], self._digest
        if path in PUBLIC_PATHS:
            return None
        if path == ADMIN_PREFIX or path.startswith(f"{ADMIN_PREFIX}/"):
            digest = self._admin_digest
            if digest is None:
                message = "the admin routes are closed on this server; --admin-api-key KEY opens them to whoever has that key"
                return PermissionDeniedError(message)
        if digest is None:
            return None
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) == 1 and _is_right(given[0], digest):
            return None
        return AuthenticationError(
            "the API key is wrong" if given else "no API key; send the header 'Authorization: Bearer KEY'"
        )


def _is_right(header: bytes, digest: bytes) -> bool:
    scheme, _, key = header.partition(b" ")
    return hmac.compare_digest(_digest(key.strip()), digest) and scheme.lower() == b"bearer"


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
