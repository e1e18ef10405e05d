"""text.format of a /v1/responses body: the form that the answer is to have."""

from __future__ import annotations

from typing import Any

from octavo.server.openai.structured_fields import AskedForm
from octavo.server.service.conversation import optional, shown, wrong
from octavo.structured_outputs import StructuredOutputsParams

_KEYS = {"text": ("type",), "json_object": ("type",), "json_schema": ("type", "name", "description", "schema", "strict")}


def asked_format(value: dict[str, Any] | None) -> AskedForm | None:
    """The form; None for plain text. strict or not, a schema is kept in full. Raises InvalidRequestError naming the place."""
    kind = "text" if value is None else value.get("type")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise wrong("text.format.type", f"is {shown(kind)}; it must be one of {', '.join(_KEYS)}")
    for key, item in (value or {}).items():
        if key not in _KEYS[kind] and item is not None:
            raise wrong(f"text.format.{key[:64]}", f"does not belong to the type {kind}", "unknown_field")
    if value is None or kind == "text":
        return None
    if kind == "json_object":
        return AskedForm(StructuredOutputsParams(json_object=True), "structured_outputs.json_object", "text.format")
    schema = value.get("schema")
    if not isinstance(schema, dict):
        raise wrong(
            "text.format.schema", "must be a JSON schema: an object", "invalid_type" if schema is not None else "missing_field"
        )
    for key, wanted in (("name", str), ("description", str), ("strict", bool)):
        optional(value, key, wanted, "text.format")
    return AskedForm(StructuredOutputsParams(json=schema or True), "structured_outputs.json", "text.format.schema")


def format_json(value: dict[str, Any] | None) -> dict[str, Any]:
    """The format as the answer repeats it: with all the keys that a client knows."""
    if value is None or value["type"] != "json_schema":
        return {"type": "text" if value is None else value["type"]}
    whole = {"type": "json_schema", "name": value.get("name") or "answer", "schema": value["schema"]}
    return whole | {"description": value.get("description"), "strict": value.get("strict")}
