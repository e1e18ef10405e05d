"""/openapi.json: handlers read bodies and paths themselves, so FastAPI does not know them; here they are described."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from octavo.server.body import HARMLESS_FIELDS, NOTHING, Body

MODEL_ID_PARAMETER: dict[str, Any] = {
    "parameters": [{"name": "model_id", "in": "path", "required": True, "schema": {"type": "string"}}]
}


def request_body(body: type[Body]) -> dict[str, Any]:
    """The OpenAPI entry of a JSON body, complete in itself: what it refers to stands where it is used.

    Fields that do nothing are in it too, and further ones, as long as they ask for nothing.
    """
    schema = body.model_json_schema()
    schema = _inlined(schema, schema.pop("$defs", {}))
    schema["properties"] = {**{name: {} for name in sorted(HARMLESS_FIELDS)}, **schema["properties"]}
    schema["additionalProperties"] = {"enum": NOTHING}
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
