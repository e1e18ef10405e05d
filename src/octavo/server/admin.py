"""Health, readiness, load, metrics and version."""

from __future__ import annotations

import re

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from octavo import __version__
from octavo.errors import ConfigError, EngineDeadError
from octavo.server.context import context_of, service_of
from octavo.server.errors import json_response
from octavo.server.health import read_health

OWN_PREFIX = "octavo"
_NAMES = re.compile(rb"^((?:# (?:HELP|TYPE) )?)octavo:", re.MULTILINE)
"""Where names stand: never inside a label."""
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


async def health(request: Request) -> Response:
    """GET /health: 200 while the engine core's loop beats, 503 when it is dead or stuck. Public."""
    await service_of(request).engine.check_health()
    return json_response(b'{"status":"ok"}')


async def health_detail(request: Request) -> Response:
    """GET /health/detail: server.health.Health; 503 while no new request is taken."""
    context = context_of(request)
    found = await read_health(context.service.engine, is_draining=context.inflight.closed)
    return json_response(msgspec.json.encode(found), 200 if found.takes_requests else 503)


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
    """GET /metrics: the engine's registry in Prometheus text form, under the prefix that was asked for."""
    context = context_of(request)
    text = generate_latest(context.service.engine.metrics)
    if context.config.metrics_prefix != OWN_PREFIX:
        text = _NAMES.sub(rb"\1" + context.config.metrics_prefix.encode() + b":", text)
    return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})


def check_prefix(prefix: str) -> None:
    """Raise ConfigError for a prefix that no metric may have."""
    if not _PREFIX.fullmatch(prefix):
        message = f"--metrics-prefix is {prefix[:100]!r}; it must be letters, digits and _, a letter first"
        raise ConfigError(message, param="metrics_prefix")


async def version(request: Request) -> Response:
    """GET /version."""
    return json_response(msgspec.json.encode({"version": __version__}))
