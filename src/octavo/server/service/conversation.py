"""Conversations in the shape that chat templates read, put together from the parts that protocols send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from octavo.errors import InvalidRequestError

MAX_PARTS = 4096
"""Most messages, items, parts or tools of one list."""

Content = str | list[dict[str, Any]]


def text_content(texts: Sequence[str]) -> Content:
    """One text as it is; several, or none, as text parts, which the template joins in its own way."""
    if len(texts) == 1:
        return texts[0]
    return [{"type": "text", "text": text} for text in texts] or ""


def tool_call(call_id: str, name: str, arguments: str | Mapping[str, Any]) -> dict[str, Any]:
    """A call in an assistant's message; arguments is the object, or text where it is none."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def function_tool(tool: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """A tool as the conversation has it: the keys in names under their name there, in the client's order, for the template
    shows the tool as it stands. What is None is left out."""
    function = {names[key]: value for key, value in tool.items() if key in names and value is not None}
    return {"type": "function", "function": function}


def optional(value: Mapping[str, Any], key: str, kind: type, where: str) -> None:
    """Raise InvalidRequestError unless the value at this key is of this kind, or None, or absent."""
    words = {str: "a string", bool: "true or false", dict: "an object"}
    if value.get(key) is not None and not isinstance(value[key], kind):
        raise wrong(f"{where}.{key}", f"must be {words[kind]}", "invalid_type")


def as_list(value: Any, where: str) -> list[Any]:
    """value if it is a list of at most MAX_PARTS entries. Raises InvalidRequestError."""
    if not isinstance(value, list):
        raise wrong(where, "must be a list", "invalid_type")
    if len(value) > MAX_PARTS:
        raise wrong(where, f"has {len(value)} entries; at most {MAX_PARTS} are allowed")
    return value


def as_object(value: Any, where: str) -> dict[str, Any]:
    """value if it is an object. Raises InvalidRequestError."""
    if not isinstance(value, dict):
        raise wrong(where, "must be an object", "invalid_type")
    return value


def text_of(value: Mapping[str, Any], key: str, where: str) -> str:
    """The text at a key of an object that stands at `where`. Raises InvalidRequestError."""
    text = value.get(key)
    if text is None:
        raise wrong(f"{where}.{key}", "is required", "missing_field")
    if not isinstance(text, str):
        raise wrong(f"{where}.{key}", "must be a string", "invalid_type")
    return text


def wrong(where: str, what: str, code: str = "invalid_value") -> InvalidRequestError:
    """The error of the field at `where`; what: the rest of the sentence that begins with it."""
    return InvalidRequestError(f"{where} {what}", param=where, code=code)


def shown(value: Any) -> str:
    """A value in an error, short."""
    return repr(value)[:64]
