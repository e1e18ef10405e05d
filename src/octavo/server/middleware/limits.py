"""Body size limit: refused by its Content-Length before a byte is read, or at the byte that goes over."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.errors import InvalidRequestError
from octavo.server.errors import response_of


class BodyTooLargeError(InvalidRequestError):
    """The body has more bytes than the server takes."""

    status = 413
    code = "body_too_large"


class BodyLimitMiddleware:
    """Answers 413 to bodies of more than max_body_size bytes, declared or counted.

    The connection stays open and the HTTP parser throws the rest of the body away: closing at once would reset the connection
    under an answer that the client has not read yet.
    """

    def __init__(self, app: ASGIApp, max_body_size: int) -> None:
        self._app = app
        self._limit = max_body_size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = _content_length(scope)
        if declared > self._limit:
            await response_of(self._error(f"the body has {declared} bytes"), scope["path"])(scope, receive, send)
            return
        received = 0

        async def counted_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._limit:
                raise self._error("the body is larger")
            return message

        await self._app(scope, counted_receive, send)

    def _error(self, what: str) -> BodyTooLargeError:
        return BodyTooLargeError(f"{what}; at most {self._limit} bytes are allowed (--max-body-size)")


def _content_length(scope: Scope) -> int:
    """The declared length in bytes; 0 when there is none. The HTTP parser has refused anything that is no number."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and len(value) < 20:
            return int(value)
    return 0
