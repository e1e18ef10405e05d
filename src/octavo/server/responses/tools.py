"""Tools of a /v1/responses body: flat descriptions and a choice, as the conversation has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from octavo.server.service.conversation import as_list, as_object, function_tool, optional, shown, text_of, wrong
from octavo.server.service.tool_plan import NamedTool, ToolChoice

_KEYS = ("name", "description", "parameters", "strict")


def read_tools(value: Any) -> list[dict[str, Any]]:
    """The tools of type function, nested as a chat has them. Raises InvalidRequestError naming the place."""
    if value is None:
        return []
    return [
        _read_tool(as_object(tool, f"tools[{index}]"), f"tools[{index}]") for index, tool in enumerate(as_list(value, "tools"))
    ]


def _read_tool(tool: dict[str, Any], where: str) -> dict[str, Any]:
    kind = tool.get("type")
    if kind != "function":
        raise wrong(
            f"{where}.type",
            f"is {shown(kind)}; this server has no built-in tools, so it must be function, and the client does the work",
            "unsupported_field",
        )
    if isinstance(tool.get("function"), dict):
        raise wrong(f"{where}.function", "is the form of chats; here name, description and parameters stand beside type")
    text_of(tool, "name", where)
    for key, wanted in (("description", str), ("parameters", dict), ("strict", bool)):
        optional(tool, key, wanted, where)
    return function_tool(tool, {key: key for key in _KEYS})


def tools_json(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tools as the answer repeats them: with all the keys that a client knows."""
    return [{"type": "function"} | {key: tool["function"].get(key) for key in _KEYS} for tool in tools]


def read_tool_choice(value: Any) -> ToolChoice:
    """The choice. Raises InvalidRequestError for what is none."""
    if isinstance(value, dict):
        kind = value.get("type")
        if kind != "function":
            raise wrong(
                "tool_choice.type",
                f"is {shown(kind)}; it must be function, or tool_choice a word: none, auto or required. To allow some of the "
                "tools only, send those alone",
                "unsupported_field",
            )
        return NamedTool(text_of(value, "name", "tool_choice"))
    if value not in (None, "none", "auto", "required"):
        raise wrong("tool_choice", f"is {shown(value)}; it must be none, auto, required or an object")
    choice: ToolChoice = value or "auto"
    return choice


def tool_choice_json(choice: ToolChoice) -> Any:
    """The choice as the answer repeats it."""
    return {"type": "function", "name": choice.name} if isinstance(choice, NamedTool) else choice
