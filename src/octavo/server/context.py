"""ServerContext: what every HTTP handler needs, passed through `app.state.context`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from starlette.requests import Request

from octavo.config.server import ServerConfig
from octavo.request import DEFAULT_TENANT
from octavo.server.access.key_file import ApiKey
from octavo.server.access.metered import service_for
from octavo.server.access.usage import UsageStore
from octavo.server.api_keys import ApiKeys
from octavo.server.body_budget import BodyBudget
from octavo.server.service.inflight import Inflight
from octavo.server.service.occupancy import Occupancy
from octavo.server.service.service import Service


@dataclass(slots=True, kw_only=True)
class ServerContext:
    """The service, and what HTTP adds to it. usage: of the keys of --api-keys; None without that file.

    service is replaced when another model is loaded; a request keeps to the one that it began with.
    """

    service: Service
    keys: ApiKeys
    usage: UsageStore | None
    config: ServerConfig
    inflight: Inflight
    bodies: BodyBudget
    occupancy: Occupancy = field(default_factory=Occupancy)


def context_of(request: Request) -> ServerContext:
    """The context of the app that serves this request."""
    return cast(ServerContext, request.app.state.context)


def service_of(request: Request) -> Service:
    """The service behind the app that serves this request, within the limits of its API key."""
    context, key = context_of(request), _key_of(request)
    service: Service = getattr(request.state, "service", context.service)
    return service if key is None or context.usage is None else service_for(service, key, context.usage)


def tenant_of(request: Request, user: str | None) -> str:
    """Whose request it is."""
    context, key = context_of(request), _key_of(request)
    return key.tenant if key is not None and context.keys.names_tenants else user or DEFAULT_TENANT


def _key_of(request: Request) -> ApiKey | None:
    return cast("ApiKey | None", getattr(request.state, "api_key", None))
