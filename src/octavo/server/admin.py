"""Health, readiness, load, metrics and version."""

from __future__ import annotations

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from octavo import __version__
from octavo.errors import EngineDeadError
from octavo.server.context import context_of, service_of
from octavo.server.errors import json_response


async def health(request: Request) -> Response:
    """GET /health: 200 while the engine core's loop beats, 503 when it is dead or stuck. Public."""
    await service_of(request).engine.check_health()
    return json_response(b'{"status":"ok"}')


async def ready(request: Request) -> Response:
    """GET /ready: 200 when a new request would be taken, 503 while the server drains or the engine is down."""
    context = context_of(request)
    if context.inflight.closed:
        raise EngineDeadError("the server is shutting down", code="shutting_down")
    await context.service.engine.check_health()
    return json_response(b'{"status":"ready"}')


async def load(request: Request) -> Response:
    """GET /load: {"server_load"}: how many requests that make work are being served, as vLLM counts them."""
    return json_response(msgspec.json.encode({"server_load": context_of(request).inflight.count}))


async def metrics(request: Request) -> Response:
    """GET /metrics: the engine's registry in Prometheus text form."""
    return Response(generate_latest(service_of(request).engine.metrics), headers={"content-type": CONTENT_TYPE_LATEST})


async def version(request: Request) -> Response:
    """GET /version."""
    return json_response(msgspec.json.encode({"version": __version__}))
