"""Errors as answers: every failure leaves the server in OpenAI's one error shape with the right status."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

import msgspec
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import AuthenticationError, OctavoError, OverloadedError

log = logging.getLogger("octavo.server")

_HTTP_CODES = {404: "route_not_found", 405: "method_not_allowed"}


def error_body(message: str, type: str, param: str | None, code: str | None) -> bytes:
    """The JSON of one error: {"error": {"message", "type", "param", "code"}}."""
    return msgspec.json.encode({"error": {"message": message, "type": type, "param": param, "code": code}})


def body_of(error: BaseException) -> bytes:
    """The JSON of any exception; one that is not ours says nothing about our insides."""
    if isinstance(error, OctavoError):
        return error_body(error.message, error.type, error.param, error.code)
    return error_body("internal error; the server's log has the details", "server_error", None, "internal_error")


def response_of(error: BaseException) -> Response:
    """The HTTP answer to any exception, with Retry-After or WWW-Authenticate where they belong."""
    headers: dict[str, str] = {}
    status = 500
    if isinstance(error, OctavoError):
        status = error.status
    if isinstance(error, OverloadedError):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    elif status == 503:
        headers["retry-after"] = "1"
    if isinstance(error, AuthenticationError):
        headers["www-authenticate"] = "Bearer"
    return json_response(body_of(error), status, headers)


def json_response(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response of ready JSON bytes."""
    return Response(body, status_code=status, media_type="application/json", headers=headers)


def install_handlers(app: FastAPI) -> None:
    """Route every exception of the app through the one shape."""

    async def on_octavo_error(request: Request, error: Exception) -> Response:
        return response_of(error)

    async def on_http_exception(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path[:200]
        if error.status_code == 404:
            known = "/v1/models, /v1/chat/completions, /v1/completions, /v1/embeddings, /docs"
            message = f"no route {request.method} {path}; see {known}"
        elif error.status_code == 405:
            allowed = (error.headers or {}).get("Allow", "another method")
            message = f"{request.method} is not allowed on {path}; use {allowed}"
        else:
            message = str(error.detail)
        body = error_body(message, "invalid_request_error", None, _HTTP_CODES.get(error.status_code, "http_error"))
        return json_response(body, error.status_code, error.headers)

    async def on_any_exception(request: Request, error: Exception) -> Response:
        log.error("unexpected error in %s %s", request.method, request.url.path)
        return response_of(error)

    app.add_exception_handler(OctavoError, on_octavo_error)
    app.add_exception_handler(HTTPException, on_http_exception)
    app.add_exception_handler(Exception, on_any_exception)
