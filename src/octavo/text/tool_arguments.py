"""Arguments of past tool calls as a chat template wants them: most want the object, some put the JSON text into a longer one.

Source: the idea to try both and look is llama.cpp's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from octavo.text.content_format import Message

_NEEDLE = {"octavo_key": "octavo_value"}
_AS_TEXT = json.dumps(_NEEDLE)
_AS_PYTHON = repr(_NEEDLE)


def wants_text(render: Callable[[list[Message]], str | None]) -> bool:
    """Whether a template, given as a function that answers None where it fails, wants arguments as text.

    It does where an object is refused, or shown in Python's notation, and a text comes out as it went in.
    """
    shown = _shown(render, _NEEDLE)
    if shown is not None and _AS_PYTHON not in shown:
        return False
    shown = _shown(render, _AS_TEXT)
    return shown is not None and _AS_TEXT in shown


def has_calls(messages: Sequence[Mapping[str, Any]]) -> bool:
    return any(message.get("tool_calls") for message in messages)


def with_arguments(messages: Sequence[Mapping[str, Any]], *, as_text: bool) -> list[Message]:
    """Copies with the arguments of all calls as JSON text, or as objects where they are the JSON text of one."""
    changed = [dict(message) for message in messages]
    for message in changed:
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            message["tool_calls"] = [_with_arguments(call, as_text) for call in calls]
    return changed


def _with_arguments(call: Any, as_text: bool) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    arguments = function.get("arguments")
    if as_text:
        changed = json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, Mapping) else arguments
    else:
        changed = _object(arguments) if isinstance(arguments, str) else arguments
    return {**call, "function": {**function, "arguments": changed}}


def _object(text: str) -> Any:
    """The object that a JSON text holds, or the text."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _shown(render: Callable[[list[Message]], str | None], arguments: object) -> str | None:
    """A conversation with one call, rendered: some templates want its result behind it, others do not know the role."""
    return next((text for chat in _chats(arguments) if (text := render(chat)) is not None), None)


def _chats(arguments: object) -> Iterator[list[Message]]:
    call = {"id": "octavo123", "type": "function", "function": {"name": "f", "arguments": arguments}}
    chat: list[Message] = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    yield chat
    yield [*chat, {"role": "tool", "tool_call_id": "octavo123", "name": "f", "content": "x"}]
