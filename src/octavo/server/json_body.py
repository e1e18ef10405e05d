"""Read a request body as JSON: content type, deadline, encoding, numbers and nesting checked before any field is."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from octavo.errors import InvalidRequestError
from octavo.server.body_budget import BodyBudget
from octavo.server.context import context_of

MAX_DEPTH = 64
"""Deepest nesting of arrays and objects. Tool schemas in the wild stay below 20; jinja and pydantic recurse per level."""

MAX_NODES = 100_000
"""Most lists, objects and keys in all. A body of 16 MiB can hold millions, and each costs the event loop a microsecond and
more; 4096 messages of parts are 40,000. Numbers in lists (token ids) do not count."""

BODY_TIMEOUT_S = 60.0
"""A body that is not complete after this long gets 408, so that a slow sender cannot hold a connection for ever."""


class BodyError(InvalidRequestError):
    """The body cannot be read at all; carries its own status."""

    def __init__(self, message: str, *, status: int = 400, code: str = "invalid_json") -> None:
        super().__init__(message, code=code)
        self.status = status


async def read_json_object(request: Request) -> dict[str, Any]:
    """The body as a dict.

    Raises: BodyError 400 (not JSON, not UTF-8, a lone surrogate, NaN, a number out of range, nested deeper than MAX_DEPTH,
    more than MAX_NODES lists, objects and keys, not an object), 408 (too slow), 415 (content type or encoding);
    OverloadedError when too many large bodies arrive at once.
    """
    content_type = request.headers.get("content-type", "")
    media_type = content_type.split(";", 1)[0].strip().lower()
    if media_type not in ("application/json", "") and not _takes_any_type(request):
        raise BodyError(
            f"content type is {media_type[:100]!r}; send application/json", status=415, code="unsupported_media_type"
        )
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", ""):
        raise BodyError(
            f"content encoding is {encoding[:100]!r}; send the body as it is", status=415, code="unsupported_media_type"
        )
    budget = context_of(request).bodies
    raw = bytearray()
    try:
        await asyncio.wait_for(_receive(request, raw, budget), BODY_TIMEOUT_S)
        return parse_json_object(raw)
    except asyncio.TimeoutError:
        raise BodyError(f"the body did not arrive within {BODY_TIMEOUT_S:.0f} s", status=408, code="body_timeout") from None
    except ClientDisconnect:
        raise BodyError("the client closed the connection before the body was complete", code="client_closed") from None
    finally:
        budget.give_back(len(raw))


def _takes_any_type(request: Request) -> bool:
    """Ollama reads no content type, and the curl commands of its users send none that is right.

    Pages of a browser, which send their origin, do not profit: with another type they could call without asking first.
    """
    return request.scope["path"].startswith("/api/") and "origin" not in request.headers


async def _receive(request: Request, raw: bytearray, budget: BodyBudget) -> None:
    """Append the body to raw. Not request.body(), which would keep a copy for as long as the answer runs."""
    async for chunk in request.stream():
        budget.take(len(chunk))
        raw += chunk


def parse_json_object(raw: bytes | bytearray) -> dict[str, Any]:
    """The bytes as a JSON object. Raises BodyError as above."""
    if not raw:
        raise BodyError("the body is empty; send a JSON object")
    try:
        value = msgspec.json.decode(raw)
    except RecursionError:
        raise BodyError(f"the body is nested deeper than {MAX_DEPTH} levels", code="json_too_deep") from None
    except msgspec.MsgspecError as error:
        reason = str(error).removesuffix(" - at `$[...]`")  # says only that it is somewhere inside
        raise BodyError(f"the body is not valid JSON: {reason}") from None
    except UnicodeDecodeError as error:
        raise BodyError(f"the body is not valid UTF-8: {error.reason} at byte {error.start}") from None
    if not isinstance(value, dict):
        raise BodyError("the body must be a JSON object")
    check_shape(value)
    return value


def check_shape(value: Any) -> None:
    """Raise BodyError when value nests deeper than MAX_DEPTH or has more than MAX_NODES lists, objects and keys.

    Iterative: the stack never grows with the input.
    """
    level = [value]
    num_nodes = 0
    for _ in range(MAX_DEPTH):
        num_nodes += len(level) + sum(len(container) for container in level if isinstance(container, dict))
        if num_nodes > MAX_NODES:
            raise BodyError(f"the body has more than {MAX_NODES} lists, objects and keys", code="json_too_large")
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise BodyError(f"the body is nested deeper than {MAX_DEPTH} levels", code="json_too_deep")
