"""ServerContext: what every HTTP handler needs, passed through `app.state.context`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from starlette.requests import Request

from octavo.config.server import ServerConfig
from octavo.server.body_budget import BodyBudget
from octavo.server.service.inflight import Inflight
from octavo.server.service.service import Service


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """The service, and what HTTP adds to it."""

    service: Service
    config: ServerConfig
    inflight: Inflight
    bodies: BodyBudget


def context_of(request: Request) -> ServerContext:
    """The context of the app that serves this request."""
    return cast(ServerContext, request.app.state.context)


def service_of(request: Request) -> Service:
    """The service behind the app that serves this request."""
    return context_of(request).service


def tenant_of(request: Request, user: str | None) -> str:
    """Whose request it is."""
    return service_of(request).tenant(getattr(request.state, "key_owner", None), user)
