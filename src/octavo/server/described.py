"""What /openapi.json says of values that the handlers read themselves, for no model describes them (json_values.py)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import WithJsonSchema

_TEXT = {"type": "string"}
_OBJECTS = {"type": "array", "items": {"type": "object"}}
_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_NONE = {"type": "null"}
_CONTENT = {"anyOf": [_TEXT, _OBJECTS, _NONE]}
_TEXTS_OR_IDS = {
    "anyOf": [
        _TEXT,
        {"type": "array", "items": _TEXT, "minItems": 1},
        _IDS,
        {"type": "array", "items": _IDS, "minItems": 1},
    ]
}
_TEXTS = {"type": "array", "items": {"anyOf": [_TEXT, {"type": "object"}]}, "minItems": 1}


def _messages(*roles: str) -> dict[str, Any]:
    properties = {"role": {"enum": list(roles)}, "content": _CONTENT}
    return {"type": "array", "items": {"type": "object", "properties": properties, "required": ["role"]}, "minItems": 1}


_CHAT = _messages("system", "developer", "user", "assistant", "tool")
_FUNCTION = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
        "description": _TEXT,
        "parameters": {"type": "object"},
        "strict": {"type": "boolean"},
    },
    "required": ["name"],
}
_TOOL = {
    "type": "object",
    "properties": {"type": {"const": "function"}, "function": _FUNCTION},
    "required": ["type", "function"],
}

Prompts = Annotated[Any, WithJsonSchema(_TEXTS_OR_IDS)]
"""A text, token ids, or a list of either."""
OptionalPrompts = Annotated[Any, WithJsonSchema({"anyOf": [_TEXTS_OR_IDS, _NONE]})]
Texts = Annotated[Any, WithJsonSchema({"anyOf": [_TEXT, _TEXTS, _NONE]})]
TokenIds = Annotated[Any, WithJsonSchema({"type": "array", "items": {"type": "integer", "minimum": 0}})]
Messages = Annotated[Any, WithJsonSchema(_CHAT)]
OptionalMessages = Annotated[Any, WithJsonSchema({"anyOf": [_CHAT, _NONE]})]
Turns = Annotated[Any, WithJsonSchema(_messages("user", "assistant"))]
"""Messages of the protocols that have a field of its own for the system."""
FunctionTools = Annotated[Any, WithJsonSchema({"anyOf": [{"type": "array", "items": _TOOL}, _NONE]})]
Objects = Annotated[Any, WithJsonSchema({"anyOf": [_OBJECTS, _NONE]})]
TextOrObjects = Annotated[Any, WithJsonSchema({"anyOf": [_TEXT, {**_OBJECTS, "minItems": 1}]})]
OptionalTextOrObjects = Annotated[Any, WithJsonSchema({"anyOf": [_TEXT, _OBJECTS, _NONE]})]
ToolChoiceField = Annotated[Any, WithJsonSchema({"anyOf": [{"enum": ["none", "auto", "required"]}, {"type": "object"}, _NONE]})]
StopTexts = Annotated[list[str] | None, WithJsonSchema({"anyOf": [_TEXT, {"type": "array", "items": _TEXT}, _NONE]})]
Documents = Annotated[list[Any], WithJsonSchema(_TEXTS)]
ObjectChoice = Annotated[Any, WithJsonSchema({"anyOf": [{"type": "object"}, _NONE]})]
