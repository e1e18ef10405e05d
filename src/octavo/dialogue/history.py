"""The past of a conversation as the chat template can show it: ids that it takes, and tools where it knows none."""

from __future__ import annotations

import hashlib
import json
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.dialogue.dialect import Dialect
from octavo.errors import InvalidRequestError

_SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}")
_ALPHANUMERIC = string.digits + string.ascii_letters

INTRODUCTION = """You may call functions to answer the user. These are the functions, as JSON:
<tools>
{tools}
</tools>

To call a function, answer with nothing but its name and its arguments as JSON:
{example}
For several calls, write one after the other. The results come in <tool_response> tags.
If no function is needed, answer in plain text."""
"""What a model is told of its tools where its chat template does not say it."""

Messages = list[dict[str, Any]]


def as_template_wants(
    dialect: Dialect, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
) -> tuple[Messages, list[Mapping[str, Any]] | None]:
    """Messages and tools for the template.

    Where it knows no tools, they become text: a part of the system message, calls in the content of the assistant, and results
    as messages of the user.
    """
    if not all(isinstance(message, Mapping) for message in messages):
        return list(messages), None  # type: ignore[arg-type]  # the template says what is wrong with them
    if dialect.template_knows_tools:
        return _with_short_ids(dialect, messages), None if tools is None else list(tools)
    plain: Messages = []
    for message in messages:
        result = message.get("role") == "tool"
        shown = _as_user(message) if result else _with_calls_as_text(dialect, message)
        if result and plain and plain[-1].pop("is_result", False):
            shown["content"] = f"{plain[-1]['content']}\n{shown['content']}"
            plain.pop()
        plain.append(shown)
    for message in plain:
        message.pop("is_result", None)
    if tools:
        _introduce(plain, dialect, tools)
    return plain, None


def introduction(dialect: Dialect, tools: Sequence[Mapping[str, Any]]) -> str:
    """The text that tells a model of its tools."""
    lines = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    example = dialect.tool_format.form.write("NAME", '{"KEY": "VALUE"}')
    return INTRODUCTION.format(tools=lines, example=example)


def _introduce(messages: Messages, dialect: Dialect, tools: Sequence[Mapping[str, Any]]) -> None:
    text = introduction(dialect, tools)
    if not dialect.template_knows_system:
        place = next((message for message in messages if message["role"] == "user"), None)
        if place is not None:
            place["content"] = f"{text}\n\n{_text(place)}"
            return
    if messages and messages[0]["role"] in ("system", "developer"):
        messages[0]["content"] = f"{_text(messages[0])}\n\n{text}"
    else:
        messages.insert(0, {"role": "system", "content": text})


def _as_user(message: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": f"<tool_response>\n{_text(message)}\n</tool_response>", "is_result": True}


def _with_calls_as_text(dialect: Dialect, message: Mapping[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls")
    shown = {key: value for key, value in message.items() if key != "tool_calls"}
    if calls:
        form = dialect.tool_format.form
        try:
            texts = [form.write(call["function"]["name"], _as_json(call["function"]["arguments"])) for call in calls]
        except (KeyError, TypeError, ValueError):
            raise InvalidRequestError(
                'tool_calls must be a list of {"function": {"name": ..., "arguments": ...}}', param="messages"
            ) from None
        text = _text(message)
        shown["content"] = (f"{text}\n" if text else "") + form.separator.join(texts)
    return shown


def _with_short_ids(dialect: Dialect, messages: Sequence[Mapping[str, Any]]) -> Messages:
    """Where the template takes ids of nine letters and digits alone, others are replaced, alike for a call and its result."""
    changed: Messages = [dict(message) for message in messages]
    if not dialect.tool_format.has_short_ids:
        return changed
    for message in changed:
        if isinstance(message.get("tool_call_id"), str):
            message["tool_call_id"] = short_id(message["tool_call_id"])
        if message.get("tool_calls"):
            message["tool_calls"] = [{**call, "id": short_id(str(call.get("id", "")))} for call in message["tool_calls"]]
    return changed


def short_id(given: str) -> str:
    """given if it has nine letters and digits, else nine that are a function of it."""
    if _SHORT_ID.fullmatch(given):
        return given
    digest = hashlib.sha256(given.encode("utf-8", "surrogatepass")).digest()
    return "".join(_ALPHANUMERIC[byte % len(_ALPHANUMERIC)] for byte in digest[:9])


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str) or not isinstance(content, Sequence):
        return str(content)
    return "\n".join(str(part.get("text", "")) if isinstance(part, Mapping) else str(part) for part in content)


def _as_json(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
