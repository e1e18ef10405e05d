"""Authentication: without a key no route answers but /health. The /admin routes have a key of their own, or are closed."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.errors import AuthenticationError, OctavoError, PermissionDeniedError
from octavo.server.api_keys import ApiKeys
from octavo.server.errors import response_of

PUBLIC_PATHS = frozenset({"/health"})
"""The whole allow-list. Everything else, unknown paths included, is denied first and routed second."""

ADMIN_PREFIX = "/admin"


class AuthMiddleware:
    """Checks 'Authorization: Bearer KEY' in constant time and notes the key's owner in `scope["state"]["key_owner"]`.

    'x-api-key: KEY' is the same in the words of Anthropic's clients. It counts where there is no Authorization.

    api_keys       open all but the admin routes; without any these are open to everybody
    admin_api_key  opens the admin routes, and nothing else; None closes them to everybody
    """

    def __init__(self, app: ASGIApp, api_keys: ApiKeys, admin_api_key: str | None) -> None:
        self._app = app
        self._api_keys = api_keys
        self._admin_keys = ApiKeys({} if admin_api_key is None else {"admin": admin_api_key})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            error = self._refusal(scope)
            await (self._app if error is None else response_of(error, scope["path"]))(scope, receive, send)

    def _refusal(self, scope: Scope) -> OctavoError | None:
        """Why the request must not be routed; None: it may."""
        path, keys = scope["path"], self._api_keys
        if path in PUBLIC_PATHS:
            return None
        if path == ADMIN_PREFIX or path.startswith(f"{ADMIN_PREFIX}/"):
            keys = self._admin_keys
            if not keys:
                message = "the admin routes are closed on this server; --admin-api-key KEY opens them to whoever has that key"
                return PermissionDeniedError(message)
        if not keys:
            return None
        given = _given_keys(scope)
        owner = keys.owner(given[0]) if len(given) == 1 else None
        if owner is not None:
            scope.setdefault("state", {})["key_owner"] = owner
            return None
        return AuthenticationError(
            "the API key is wrong" if given else "no API key; send the header 'Authorization: Bearer KEY' or 'x-api-key: KEY'"
        )


def _given_keys(scope: Scope) -> list[bytes]:
    """The keys of all Authorization headers; those of x-api-key where there is none. Another scheme gives an empty key."""
    bearers = [value.partition(b" ") for name, value in scope["headers"] if name == b"authorization"]
    if bearers:
        return [key.strip() if scheme.lower() == b"bearer" else b"" for scheme, _, key in bearers]
    return [value.strip() for name, value in scope["headers"] if name == b"x-api-key"]
