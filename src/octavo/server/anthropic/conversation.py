"""Messages of content blocks, and the system text, as a conversation."""

from __future__ import annotations

from typing import Any

from octavo.server.json_values import as_list, as_object, objects_of, optional, parts_of, shown, text_of, wrong
from octavo.server.service.conversation import Content, text_content, tool_call

ROLES = ("user", "assistant", "system")


def read_conversation(messages: Any, system: Any) -> list[dict[str, Any]]:
    """The messages, the system text first. A message of the user with results of tools becomes several.

    Raises InvalidRequestError naming the place, e.g. "messages[2].content[0].type".
    """
    conversation: list[dict[str, Any]] = []
    if system is not None:
        conversation.append({"role": "system", "content": _read_texts(system, "system")})
    if not as_list(messages, "messages"):
        raise wrong("messages", "is empty; give at least one message", "empty_prompt")
    call_ids: set[str] = set()
    for where, message in objects_of(messages, "messages"):
        role = message.get("role")
        if role not in ROLES:
            raise wrong(f"{where}.role", f"is {shown(role)}; it must be one of {', '.join(ROLES)}")
        if message.get("content") is None:
            raise wrong(f"{where}.content", "is required", "missing_field")
        if role == "assistant":
            conversation.append(_read_assistant(message["content"], f"{where}.content", call_ids))
        elif role == "user":
            conversation += _read_user(message["content"], f"{where}.content", call_ids)
        else:
            conversation.append({"role": "system", "content": _read_texts(message["content"], f"{where}.content")})
    return conversation


def continues_last(conversation: list[dict[str, Any]]) -> bool:
    """The last message is the beginning of the answer. Raises InvalidRequestError for one that nothing can be added to."""
    last = conversation[-1]
    if last["role"] != "assistant":
        return False
    if "tool_calls" in last:
        raise wrong("messages", "ends with a tool_use; send its tool_result, in a message of the user")
    if not last["content"]:
        raise wrong(
            "messages", "ends with a message of the assistant without text; leave it out, or write how the answer begins"
        )
    return True


def _read_assistant(content: Any, where: str, call_ids: set[str]) -> dict[str, Any]:
    if isinstance(content, str):
        return {"role": "assistant", "content": content}
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for place, block in parts_of(content, where):
        kind = block.get("type")
        if kind == "text":
            texts.append(text_of(block, "text", place))
        elif kind == "thinking":
            thoughts.append(text_of(block, "thinking", place))
        elif kind == "tool_use":
            call_id, name = text_of(block, "id", place), text_of(block, "name", place)
            calls.append(tool_call(call_id, name, as_object(block.get("input"), f"{place}.input")))
            call_ids.add(call_id)
        elif kind != "redacted_thinking":  # it can be read by the server that made it only, and is no loss to this model
            raise _unknown(kind, f"{place}.type", "text, thinking, redacted_thinking, tool_use")
    message: dict[str, Any] = {"role": "assistant", "content": text_content(texts)}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    return {**message, "tool_calls": calls} if calls else message


def _read_user(content: Any, where: str, call_ids: set[str]) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"role": "user", "content": content}]
    messages: list[dict[str, Any]] = []
    texts: list[str] = []
    for place, block in parts_of(content, where):
        kind = block.get("type")
        if kind == "text":
            texts.append(text_of(block, "text", place))
        elif kind == "tool_result":
            if texts:
                messages.append({"role": "user", "content": text_content(texts)})
                texts = []
            messages.append(_read_result(block, place, call_ids))
        else:
            raise _unknown(kind, f"{place}.type", "text, tool_result")
    if texts or not messages:
        messages.append({"role": "user", "content": text_content(texts)})
    return messages


def _read_result(block: dict[str, Any], where: str, call_ids: set[str]) -> dict[str, Any]:
    """A tool's result. Templates have no place to say that it is an error, so the text says it."""
    call_id = text_of(block, "tool_use_id", where)
    if call_id not in call_ids:
        raise wrong(f"{where}.tool_use_id", f"is {shown(call_id)}, and no tool_use before it has this id; send that block, too")
    content = block.get("content")
    result = "" if content is None else _read_texts(content, f"{where}.content")
    optional(block, "is_error", bool, where)
    if block.get("is_error"):
        result = f"Error: {result}" if isinstance(result, str) else [{"type": "text", "text": "Error:"}, *result]
    return {"role": "tool", "tool_call_id": call_id, "content": result}


def _read_texts(value: Any, where: str) -> Content:
    """A text, or blocks of text."""
    if isinstance(value, str):
        return value
    texts = []
    for place, block in parts_of(value, where):
        if block.get("type") != "text":
            raise _unknown(block.get("type"), f"{place}.type", "text")
        texts.append(text_of(block, "text", place))
    return text_content(texts)


def _unknown(kind: Any, where: str, known: str) -> Exception:
    return wrong(
        where, f"is {shown(kind)}; this model reads text only, in blocks of these types: {known}", "unsupported_content"
    )
