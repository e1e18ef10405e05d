"""Tools of a /v1/messages body and the choice among them, as the conversation has them."""

from __future__ import annotations

from typing import Any

from octavo.server.service.conversation import as_list, as_object, function_tool, optional, shown, text_of, wrong
from octavo.server.service.tool_plan import NamedTool, ToolChoice

_CHOICES: dict[str, ToolChoice] = {"auto": "auto", "any": "required", "none": "none"}


_NAMES = {"name": "name", "description": "description", "input_schema": "parameters", "strict": "strict"}


def read_tools(value: Any) -> list[dict[str, Any]]:
    """The tools with a schema of their own. Raises InvalidRequestError naming the place."""
    if value is None:
        return []
    return [
        _read_tool(as_object(tool, f"tools[{index}]"), f"tools[{index}]") for index, tool in enumerate(as_list(value, "tools"))
    ]


def _read_tool(tool: dict[str, Any], where: str) -> dict[str, Any]:
    kind = tool.get("type", "custom")
    if kind not in ("custom", None):
        raise wrong(
            f"{where}.type",
            f"is {shown(kind)}, a tool that this server does not have; describe it with name, description and input_schema",
            "unsupported_field",
        )
    text_of(tool, "name", where)
    for key, wanted in (("description", str), ("input_schema", dict), ("strict", bool)):
        optional(tool, key, wanted, where)
    if tool.get("input_schema") is None:
        raise wrong(f"{where}.input_schema", "is required", "missing_field")
    return function_tool(tool, _NAMES)


def read_tool_choice(value: Any) -> tuple[ToolChoice, bool]:
    """The choice, and whether there may be several calls. Raises InvalidRequestError for what is none."""
    if value is None:
        return "auto", True
    kind = as_object(value, "tool_choice").get("type")
    optional(value, "disable_parallel_tool_use", bool, "tool_choice")
    if kind == "tool":
        choice: ToolChoice = NamedTool(text_of(value, "name", "tool_choice"))
    elif isinstance(kind, str) and kind in _CHOICES:
        choice = _CHOICES[kind]
    else:
        raise wrong("tool_choice.type", f"is {shown(kind)}; it must be one of {', '.join(_CHOICES)}, tool")
    return choice, not value.get("disable_parallel_tool_use")
