"""Authentication: without a key no route answers but the probes. The /admin routes have a key of their own, or are closed."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.errors import AuthenticationError, OctavoError, PermissionDeniedError
from octavo.server.access.key_file import ApiKey, digest_of
from octavo.server.access.limits import NO_LIMITS
from octavo.server.api_keys import ApiKeys
from octavo.server.errors import response_of

PUBLIC_PATHS = frozenset({"/health", "/ready"})
"""The whole allow-list; --metrics-without-key adds /metrics. All else, unknown paths included, is denied first and routed
second."""

ADMIN_PREFIX = "/admin"
ADMIN_PATHS = frozenset({"/reload"})
"""Admin routes that lie elsewhere."""


def is_admin(path: str) -> bool:
    """Whether the path asks for the admin key."""
    return path in ADMIN_PATHS or path == ADMIN_PREFIX or path.startswith(f"{ADMIN_PREFIX}/")


class AuthMiddleware:
    """Checks 'Authorization: Bearer KEY' in constant time and notes the key in `scope["state"]["api_key"]`.

    'x-api-key: KEY' is the same in the words of Anthropic's clients. It counts where there is no Authorization.

    api_keys       open all but the admin routes, each those that its limits name; without any these are open to everybody
    admin_api_key  opens the admin routes, and nothing else; None closes them to everybody
    open_paths     need no key
    """

    def __init__(self, app: ASGIApp, api_keys: ApiKeys, admin_api_key: str | None, open_paths: frozenset[str]) -> None:
        self._app = app
        self._api_keys = api_keys
        admins = [] if admin_api_key is None else [ApiKey("admin", digest_of(admin_api_key.encode()), NO_LIMITS)]
        self._admin_keys = ApiKeys(admins)
        self._open_paths = open_paths
        self._asks = bool(api_keys)
        """A server that was started with keys asks for one, also when its file has lost the last one since."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            error = self._refusal(scope)
            await (self._app if error is None else response_of(error, scope["path"]))(scope, receive, send)

    def _refusal(self, scope: Scope) -> OctavoError | None:
        """Why the request must not be routed; None: it may."""
        path, keys = scope["path"], self._api_keys
        if path in self._open_paths:
            return None
        if is_admin(path):
            keys = self._admin_keys
            if not keys:
                message = "the admin routes are closed on this server; --admin-api-key KEY opens them to whoever has that key"
                return PermissionDeniedError(message)
        elif not self._asks:
            return None
        given = _given_keys(scope)
        key = keys.find(given[0]) if len(given) == 1 else None
        if key is not None and not key.limits.opens(path):
            return PermissionDeniedError(f"this API key does not open {path[:100]}")
        if key is not None:
            scope.setdefault("state", {})["api_key"] = key
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
