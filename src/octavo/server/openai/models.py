"""/v1/models: the one model this server has."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo.server.context import ServerContext, context_of
from octavo.server.errors import json_response


async def list_models(request: Request) -> Response:
    """GET /v1/models."""
    return json_response(msgspec.json.encode({"object": "list", "data": [_card(context_of(request))]}))


async def get_model(request: Request) -> Response:
    """GET /v1/models/{id}; ids may hold slashes. 404 for any but the served one."""
    context = context_of(request)
    context.check_model(request.path_params["model_id"])
    return json_response(msgspec.json.encode(_card(context)))


def _card(context: ServerContext) -> dict[str, Any]:
    return {
        "id": context.model_name,
        "object": "model",
        "created": context.created,
        "owned_by": "octavo",
        "root": context.model_name,
        "parent": None,
        "max_model_len": context.engine.max_model_len,
    }
