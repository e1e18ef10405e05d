"""Paths: one spelling for each route, so that the doors behind it and the router see the same."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class PathMiddleware:
    """HEAD is GET without a body (the HTTP side leaves it out); a trailing slash and the root path in front are taken off.

    root_path  where a proxy mounts this server. Some proxies strip it from the path, others do not.
    """

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app = app
        self._root_path = root_path.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path: str = scope["path"]
            if self._root_path and path.startswith(f"{self._root_path}/"):
                path = path[len(self._root_path) :]
            path = path.rstrip("/") or "/"
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            if (path, method) != (scope["path"], scope["method"]) or self._root_path:
                scope = {**scope, "path": path, "method": method, "root_path": self._root_path}
        await self._app(scope, receive, send)
