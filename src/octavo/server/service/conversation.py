"""Conversations in the shape that chat templates read, put together from the parts that protocols send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
