"""Authentication: without a key no route answers but /health."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.errors import AuthenticationError
from octavo.server.api_keys import ApiKeys
from octavo.server.errors import response_of

PUBLIC_PATHS = frozenset({"/health"})
"""The whole allow-list. Everything else, unknown paths included, is denied first and routed second."""


class AuthMiddleware:
    """Checks 'Authorization: Bearer KEY' in constant time and notes the key's owner in `scope["state"]["key_owner"]`."""

    def __init__(self, app: ASGIApp, api_keys: ApiKeys) -> None:
        self._app = app
        self._api_keys = api_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or (scope["type"] == "http" and scope["path"] in PUBLIC_PATHS):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            given = [value for name, value in scope["headers"] if name == b"authorization"]
            owner = self._owner(given[0]) if len(given) == 1 else None
            if owner is not None:
                scope.setdefault("state", {})["key_owner"] = owner
                await self._app(scope, receive, send)
            else:
                message = "the API key is wrong" if given else "no API key; send the header 'Authorization: Bearer KEY'"
                await response_of(AuthenticationError(message))(scope, receive, send)

    def _owner(self, header: bytes) -> str | None:
        scheme, _, key = header.partition(b" ")
        owner = self._api_keys.owner(key.strip())
        return owner if scheme.lower() == b"bearer" else None
