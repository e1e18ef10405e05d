"""/openapi.json: handlers read bodies and paths themselves, so FastAPI does not know them; here they are described."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from octavo.server.body import Body

MODEL_ID_PARAMETER: dict[str, Any] = {
    "parameters": [{"name": "model_id", "in": "path", "required": True, "schema": {"type": "string"}}]
}


def request_body(body: type[Body]) -> dict[str, Any]:
    """The OpenAPI entry of a JSON body, complete in itself: what it refers to stands where it is used."""
    schema = body.model_json_schema()
    schema = _inlined(schema, schema.pop("$defs", {}))
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _inlined(value: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_inlined(item, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return _inlined(definitions[value["$ref"].rpartition("/")[2]], definitions)
    return {key: _inlined(item, definitions) for key, item in value.items()}


def install_schema(app: FastAPI) -> None:
    """Serve the description, made once when it is first asked for."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
