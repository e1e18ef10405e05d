"""Messages: the conversation of a chat body, checked, as plain dicts for the chat template."""

from __future__ import annotations

from typing import Any

from octavo.dialogue.tools import Tools
from octavo.errors import InvalidRequestError
from octavo.server.body import asks_for_nothing

MAX_MESSAGES = 4096
ROLES = ("system", "developer", "user", "assistant", "tool")

# What would change the answer if it were left out. All other keys that a template does not read are ignored: a message that a
# client got from here, or from another server, comes back with every key that the SDKs know.
_REFUSED_KEYS = {
    "audio": "this server reads text only; send the transcript as content",
    "function_call": "it is the old form of tool_calls; send those",
}
_PASSED_KEYS = ("name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning")
_TEXT_OF_PART = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
"""Type of a part of content -> the key of its text."""


def read_messages(value: Any, *, template_knows_developer: bool) -> list[dict[str, Any]]:
    """The messages, each with role and content (a string or a list of text parts).

    A developer message becomes a system message where the template does not know the role. Raises InvalidRequestError naming
    the place, e.g. "messages[2].content[0].type".
    """
    if not isinstance(value, list):
        raise _wrong("messages", "must be a list of messages", "invalid_type")
    if not value:
        raise _wrong("messages", "is empty; give at least one message", "empty_prompt")
    if len(value) > MAX_MESSAGES:
        raise _wrong("messages", f"has {len(value)} entries; at most {MAX_MESSAGES} are allowed")
    return [_read_message(message, f"messages[{index}]", template_knows_developer) for index, message in enumerate(value)]


def _read_message(value: Any, where: str, template_knows_developer: bool) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(where, "must be an object with role and content", "invalid_type")
    for key, instead in _REFUSED_KEYS.items():
        if value.get(key):
            raise _wrong(f"{where}.{key}", f"is not supported by this server: {instead}", "unsupported_field")
    role = value.get("role")
    if role not in ROLES:
        shown = repr(role)[:64]
        raise _wrong(f"{where}.role", f"is {shown}; it must be one of {', '.join(ROLES)}")
    message: dict[str, Any] = {"role": role, "content": _read_content(value, role, where)}
    if role == "developer" and not template_knows_developer:
        message["role"] = "system"
    for key in _PASSED_KEYS:
        if value.get(key):
            message[key] = _read_extra(key, value[key], f"{where}.{key}")
    return message


def _read_content(message: dict[str, Any], role: str, where: str) -> str | list[dict[str, str]]:
    content = message.get("content")
    if content is None and role == "assistant":  # it called tools, or refused, or said nothing
        content = message.get("refusal") or ""
    if content is None:
        raise _wrong(f"{where}.content", "is required", "missing_field")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _wrong(f"{where}.content", "must be a string or a list of parts", "invalid_type")
    return [_read_part(part, f"{where}.content[{index}]") for index, part in enumerate(content)] or ""


def _read_part(part: Any, where: str) -> dict[str, str]:
    """A part as a text part; what else stands in it (cache_control, annotations) changes nothing here."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        raise _wrong(where, 'must be an object such as {"type": "text", "text": "..."}', "invalid_type")
    kind = part.get("type")
    key = _TEXT_OF_PART.get(kind) if isinstance(kind, str) else None
    if key is None:
        known = ", ".join(_TEXT_OF_PART)
        raise _wrong(f"{where}.type", f"is {repr(kind)[:64]}; only text parts are supported: {known}", "unsupported_content")
    if not isinstance(part.get(key), str):
        raise _wrong(f"{where}.{key}", "must be a string", "invalid_type")
    return {"type": "text", "text": part[key]}


def _read_extra(key: str, value: Any, where: str) -> Any:
    if key == "tool_calls":
        return [_read_tool_call(call, f"{where}[{index}]") for index, call in enumerate(_as_list(value, where))]
    if not isinstance(value, str):
        raise _wrong(where, "must be a string", "invalid_type")
    return value


def _read_tool_call(call: Any, where: str) -> dict[str, Any]:
    """{"id", "type": "function", "function": {"name", "arguments": JSON text or object}}."""
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        raise _wrong(where, 'must be {"id", "type": "function", "function": {"name", "arguments"}}', "invalid_type")
    function = call["function"]
    arguments = function.get("arguments")
    if not isinstance(function.get("name"), str) or not isinstance(arguments, (str, dict, type(None))):
        raise _wrong(f"{where}.function", "must have a name, and arguments as JSON text or an object", "invalid_type")
    return {**call, "type": "function", "function": {**function, "arguments": arguments or "{}"}}


def read_tools(value: Any) -> list[dict[str, Any]]:
    """The tools, checked as dialogue.tools.Tools does."""
    tools = _as_list(value, "tools")
    Tools(tools)
    return tools


def read_documents(value: Any) -> list[dict[str, Any]] | None:
    """The documents for the template: at most MAX_MESSAGES objects. None: there are none."""
    if asks_for_nothing(value):
        return None
    documents = _as_list(value, "documents")
    for index, document in enumerate(documents):
        if not isinstance(document, dict):
            raise _wrong(f"documents[{index}]", 'must be an object such as {"title": "...", "text": "..."}', "invalid_type")
    return documents


def _as_list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(where, "must be a list", "invalid_type")
    if len(value) > MAX_MESSAGES:
        raise _wrong(where, f"has {len(value)} entries; at most {MAX_MESSAGES} are allowed")
    return value


def _wrong(where: str, what: str, code: str = "invalid_value") -> InvalidRequestError:
    return InvalidRequestError(f"{where} {what}", param=where, code=code)
