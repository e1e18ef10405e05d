"""Input items: the `input` and `instructions` of a request as a conversation."""

from __future__ import annotations

from typing import Any

from octavo.server.json_values import as_list, parts_of, shown, text_of, wrong
from octavo.server.service.conversation import Content, text_content, tool_call

ROLES = ("user", "assistant", "system", "developer")
_TEXT_OF_PART = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal", "reasoning_text": "text"}
"""Type of a part of content -> the key of its text."""
_STORED = "this server stores nothing, so send the item itself"
_INSTEAD = {
    "item_reference": _STORED,
    "compaction": "it can be read by the server that made it only; send the items before it",
}


def read_input(value: Any, instructions: str | None, *, template_knows_developer: bool) -> list[dict[str, Any]]:
    """The messages, instructions first.

    A developer message becomes a system message where the template does not know the role. Raises InvalidRequestError naming
    the place, e.g. "input[2].content[0].type".
    """
    if not value:
        raise wrong("input", "is empty; give a text, or at least one item", "empty_prompt")
    conversation = _Conversation(template_knows_developer)
    if instructions is not None:
        conversation.add_message("system", instructions)
    if isinstance(value, str):
        conversation.add_message("user", value)
    else:
        for where, item in parts_of(value, "input"):
            _read_item(conversation, item, where)
    if not conversation.messages:
        raise wrong("input", "holds nothing that can be answered; give a message, or the result of a call", "empty_prompt")
    return conversation.messages


class _Conversation:
    """Puts items together into messages: reasoning, text and calls that follow each other are one message of the assistant."""

    def __init__(self, template_knows_developer: bool) -> None:
        self._knows_developer = template_knows_developer
        self.messages: list[dict[str, Any]] = []
        self._turn: dict[str, Any] | None = None
        self._call_ids: set[str] = set()

    def add_message(self, role: str, content: Content) -> None:
        if role == "assistant":
            turn = self._open_turn() if self._continues() else self._new_turn()
            turn["content"] = _joined(turn["content"], content)
            return
        self._turn = None
        self.messages.append(
            {"role": "system" if role == "developer" and not self._knows_developer else role, "content": content}
        )

    def add_reasoning(self, text: str) -> None:
        if not text:
            return
        turn = self._open_turn()
        if turn["content"] or "tool_calls" in turn:
            turn = self._new_turn()
        turn["reasoning_content"] = turn.get("reasoning_content", "") + text

    def add_call(self, call_id: str, name: str, arguments: str) -> None:
        self._call_ids.add(call_id)
        self._open_turn().setdefault("tool_calls", []).append(tool_call(call_id, name, arguments or "{}"))

    def add_output(self, call_id: str, content: Content, where: str) -> None:
        if call_id not in self._call_ids:
            raise wrong(
                f"{where}.call_id",
                f"is {shown(call_id)}, and no function_call before it has this call_id; this server stores nothing, so send "
                "the call, too",
            )
        self._turn = None
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": content})

    def _continues(self) -> bool:
        """A text of the assistant goes on with the open turn: behind its reasoning or its calls, not behind another message."""
        return self._turn is not None and (not self._turn["content"] or "tool_calls" in self._turn)

    def _open_turn(self) -> dict[str, Any]:
        return self._new_turn() if self._turn is None else self._turn

    def _new_turn(self) -> dict[str, Any]:
        self._turn = {"role": "assistant", "content": ""}
        self.messages.append(self._turn)
        return self._turn


def _joined(first: Content, second: Content) -> Content:
    if not first:
        return second
    if isinstance(first, str) and isinstance(second, str):
        return first + second
    return _as_parts(first) + _as_parts(second)


def _as_parts(content: Content) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _read_item(conversation: _Conversation, item: dict[str, Any], where: str) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        role = item.get("role")
        if role not in ROLES:
            raise wrong(f"{where}.role", f"is {shown(role)}; it must be one of {', '.join(ROLES)}")
        conversation.add_message(role, _read_content(item, "content", where))
    elif kind == "reasoning":
        conversation.add_reasoning(_reasoning_text(item, where))
    elif kind == "function_call":
        conversation.add_call(text_of(item, "call_id", where), text_of(item, "name", where), text_of(item, "arguments", where))
    elif kind == "function_call_output":
        conversation.add_output(text_of(item, "call_id", where), _read_content(item, "output", where), where)
    else:
        instead = _INSTEAD.get(kind) if isinstance(kind, str) else None
        instead = instead or "known types are message, reasoning, function_call and function_call_output"
        raise wrong(f"{where}.type", f"is {shown(kind)}, which is not supported: {instead}", "unsupported_content")


def _reasoning_text(item: dict[str, Any], where: str) -> str:
    """The reasoning in plain text. A summary, or what another server has encrypted, is of no use to this model."""
    parts = item.get("content")
    return "" if parts is None else "".join(_read_parts(as_list(parts, f"{where}.content"), f"{where}.content"))


def _read_content(item: dict[str, Any], key: str, where: str) -> Content:
    content = item.get(key)
    if content is None:
        raise wrong(f"{where}.{key}", "is required", "missing_field")
    return content if isinstance(content, str) else text_content(_read_parts(content, f"{where}.{key}"))


def _read_parts(value: Any, where: str) -> list[str]:
    return [_read_part(part, place) for place, part in parts_of(value, where)]


def _read_part(part: dict[str, Any], where: str) -> str:
    kind = part.get("type")
    key = _TEXT_OF_PART.get(kind) if isinstance(kind, str) else None
    if key is None:
        known = ", ".join(_TEXT_OF_PART)
        raise wrong(
            f"{where}.type",
            f"is {shown(kind)}; this model reads text only, in parts of these types: {known}",
            "unsupported_content",
        )
    return text_of(part, key, where)
