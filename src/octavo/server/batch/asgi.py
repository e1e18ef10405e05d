"""One request to the app without a socket: the same checks and the same answers as over HTTP."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message


async def post(app: ASGIApp, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of the answer to a POST of JSON. Cancelling it aborts the request."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": None,
        "server": None,
    }
    waiting = [{"type": "http.request", "body": body, "more_body": False}]
    status, found, pieces = 500, {}, []

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        await asyncio.Event().wait()  # nobody disconnects
        raise AssertionError

    async def send(message: Message) -> None:
        nonlocal status, found
        if message["type"] == "http.response.start":
            status = message["status"]
            found = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            pieces.append(message.get("body", b""))

    await app(scope, receive, send)
    return status, found, b"".join(pieces)
