"""Errors as answers: every failure leaves the server with the right status, in the shape that the route's clients read."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import AuthenticationError, OctavoError, OverloadedError, RateLimitError
from octavo.server.error_shapes import Fault, shape_of

log = logging.getLogger("octavo.server")

_HTTP_CODES = {404: "route_not_found", 405: "method_not_allowed"}
_ROUTES = "see /v1/models, /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/responses, /v1/messages, /docs"


def fault_of(error: BaseException) -> Fault:
    """What to say of any exception; of one that is not ours nothing about our insides."""
    if isinstance(error, OctavoError):
        return Fault(error.status, error.message, error.type, error.param, error.code)
    return Fault(500, "internal error; the server's log has the details", "server_error", None, "internal_error")


def response_of(error: BaseException, path: str) -> Response:
    """The HTTP answer to any exception in a request with this path, with Retry-After or WWW-Authenticate where they belong."""
    headers: dict[str, str] = {}
    fault = fault_of(error)
    if isinstance(error, (OverloadedError, RateLimitError)):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    elif fault.status == 503:
        headers["retry-after"] = "1"
    if isinstance(error, AuthenticationError):
        headers["www-authenticate"] = "Bearer"
    return json_response(shape_of(path)(fault), fault.status, headers)


def json_response(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response of ready JSON bytes."""
    return Response(body, status_code=status, media_type="application/json", headers=headers)


def install_handlers(app: FastAPI) -> None:
    """Route every exception of the app through the shape of its route."""

    async def on_octavo_error(request: Request, error: Exception) -> Response:
        return response_of(error, request.scope["path"])

    async def on_http_exception(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path[:200]
        if error.status_code == 404 and request.scope["path"].startswith("/v1/responses/"):
            message = f"{path} is not here: this server stores no answers; keep them, and send the whole conversation as input"
        elif error.status_code == 404:
            message = f"no route {request.method} {path}; {_ROUTES}"
        elif error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "another method")
            message = f"{request.method} is not allowed on {path}; use {allowed}"
        else:
            message = str(error.detail)
        code = _HTTP_CODES.get(error.status_code, "http_error")
        fault = Fault(error.status_code, message, "invalid_request_error", None, code)
        return json_response(shape_of(request.scope["path"])(fault), error.status_code, error.headers)

    async def on_any_exception(request: Request, error: Exception) -> Response:
        log.error("unexpected error in %s %s", request.method, request.url.path)
        return response_of(error, request.scope["path"])

    app.add_exception_handler(OctavoError, on_octavo_error)
    app.add_exception_handler(HTTPException, on_http_exception)
    app.add_exception_handler(Exception, on_any_exception)
