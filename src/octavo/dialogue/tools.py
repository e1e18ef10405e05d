"""Tools: the functions that a model may call, in OpenAI's shape, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.errors import InvalidRequestError

MAX_TOOLS = 1024
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FUNCTION_KEYS: Mapping[str, tuple[type, ...]] = {"description": (str,), "parameters": (dict,), "strict": (bool,)}


class Tools:
    """The tools of one request. Raises InvalidRequestError naming the first that is wrong, as "tools[2].function.name"."""

    def __init__(self, given: Sequence[Mapping[str, Any]]) -> None:
        if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
            raise InvalidRequestError(
                f"tools must be a list of tools, not {type(given).__name__}", param="tools", code="invalid_type"
            )
        if len(given) > MAX_TOOLS:
            raise InvalidRequestError(f"tools has {len(given)} entries; at most {MAX_TOOLS} are allowed", param="tools")
        self.given = tuple(given)
        self._functions: dict[str, Mapping[str, Any]] = {}
        for index, tool in enumerate(given):
            function = _function(tool, f"tools[{index}]")
            name = function["name"]
            if name in self._functions:
                param = f"tools[{index}].function.name"
                raise InvalidRequestError(f"{param} is {name!r}, as in an earlier tool; give each its own name", param=param)
            self._functions[name] = function
        self.names = frozenset(self._functions)

    def functions(self) -> list[Mapping[str, Any]]:
        """The functions, in the order of the tools."""
        return list(self._functions.values())

    def property_schema(self, name: str, key: str) -> Any:
        """The schema of one parameter; None where there is none."""
        properties = (self._functions.get(name, {}).get("parameters") or {}).get("properties")
        return properties.get(key) if isinstance(properties, Mapping) else None


def _function(tool: Any, where: str) -> Mapping[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or tool.get("type") != "function":
        raise InvalidRequestError(
            f'{where} must be {{"type": "function", "function": {{"name": ...}}}}', param=where, code="invalid_type"
        )
    if not NAME.fullmatch(function["name"]):
        shown = function["name"][:100]
        raise InvalidRequestError(
            f"{where}.function.name is {shown!r}; it must be 1 to 64 letters, digits, _ or -", param=f"{where}.function.name"
        )
    for key, kinds in _FUNCTION_KEYS.items():
        value = function.get(key)
        if value is not None and not isinstance(value, kinds):
            wanted = {str: "a text", dict: "an object", bool: "true or false"}[kinds[0]]
            raise InvalidRequestError(
                f"{where}.function.{key} must be {wanted}", param=f"{where}.function.{key}", code="invalid_type"
            )
    return function
