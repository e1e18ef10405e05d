"""Messages as Ollama's clients write them, in the form that the chat template's side reads."""

from __future__ import annotations

from typing import Any

from octavo.errors import InvalidRequestError
from octavo.server.json_values import optional
from octavo.server.openai.messages import read_messages


def read_conversation(value: Any, *, template_knows_developer: bool) -> list[dict[str, Any]]:
    """The messages, checked. Calls have no ids in Ollama's API: they get some here, and results the id of the call they answer.

    Raises InvalidRequestError naming the place, e.g. "messages[2].images".
    """
    waiting: list[tuple[str, str]] = []
    if isinstance(value, list):
        value = [_translated(message, f"messages[{index}]", waiting) for index, message in enumerate(value)]
    return read_messages(value, template_knows_developer=template_knows_developer)


def refuse_images(value: Any, where: str) -> None:
    """Raise InvalidRequestError for a list of images that is not empty."""
    if value:
        raise InvalidRequestError(
            f"{where}: this server reads text only; leave the images out", param=where, code="unsupported_content"
        )


def _translated(message: Any, where: str, waiting: list[tuple[str, str]]) -> Any:
    """One message. waiting: (tool name, id) of the calls that no message has answered so far."""
    if not isinstance(message, dict):
        return message
    refuse_images(message.get("images"), f"{where}.images")
    message = dict(message)
    if message.get("role") == "tool":
        name = message.get("tool_name") or message.get("name")
        answered = next((call for call in waiting if call[0] == name), waiting[0] if waiting and not name else None)
        if answered is not None:
            waiting.remove(answered)
            message.setdefault("tool_call_id", answered[1])
        if isinstance(name, str):
            message["name"] = name
    if message.get("thinking"):
        optional(message, "thinking", str, where)
        message["reasoning_content"] = message["thinking"]
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        waiting.clear()
        message["tool_calls"] = [_with_id(call, index, waiting) for index, call in enumerate(calls)]
    return message


def _with_id(call: Any, index: int, waiting: list[tuple[str, str]]) -> Any:
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    # Nine digits: some templates insist on ids of nine letters or digits.
    call = {"id": f"{index:09d}", **call}
    waiting.append((str(call["function"].get("name")), str(call["id"])))
    return call
