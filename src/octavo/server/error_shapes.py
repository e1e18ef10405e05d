"""Error shapes: the JSON of an error as each protocol writes it. The path of a request says which one its client reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Fault:
    """What an answer says of an error. type, param and code are OpenAI's; other protocols have what they need of them."""

    status: int
    message: str
    type: str
    param: str | None = None
    code: str | None = None


ErrorShape = Callable[[Fault], bytes]


def openai_shape(fault: Fault) -> bytes:
    """{"error": {"message", "type", "param", "code"}}."""
    error = {"message": fault.message, "type": fault.type, "param": fault.param, "code": fault.code}
    return msgspec.json.encode({"error": error})


_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def anthropic_shape(fault: Fault) -> bytes:
    """{"type": "error", "error": {"type", "message"}}; the type follows from the status."""
    kind = _ANTHROPIC_TYPES.get(fault.status, "invalid_request_error" if fault.status < 500 else "api_error")
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": fault.message}})


def ollama_shape(fault: Fault) -> bytes:
    """{"error": message}."""
    return msgspec.json.encode({"error": fault.message})


_SHAPES: tuple[tuple[str, ErrorShape], ...] = (("/v1/messages", anthropic_shape), ("/api", ollama_shape))
"""Routes with a shape of their own, each with all that lies below it."""


def shape_of(path: str) -> ErrorShape:
    """The shape for errors of requests with this path; unknown paths have OpenAI's."""
    return next((shape for route, shape in _SHAPES if path == route or path.startswith(f"{route}/")), openai_shape)
