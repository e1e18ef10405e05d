"""/v1/models: the one model this server has, under each of its names."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo.server.context import service_of
from octavo.server.errors import json_response
from octavo.server.service.service import Service


async def list_models(request: Request) -> Response:
    """GET /v1/models."""
    service = service_of(request)
    cards = [_card(name, service) for name in service.model_names]
    return json_response(msgspec.json.encode({"object": "list", "data": cards}))


async def get_model(request: Request) -> Response:
    """GET /v1/models/{id}; ids may hold slashes. 404 for any but the served one."""
    service = service_of(request)
    name = request.path_params["model_id"]
    service.check_model(name)
    return json_response(msgspec.json.encode(_card(name, service)))


def _card(name: str, service: Service) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "octavo",
        "root": service.model_name,
        "parent": None,
        "max_model_len": service.max_model_len,
    }
