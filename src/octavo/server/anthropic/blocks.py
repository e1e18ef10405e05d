"""ContentBlocks: what the model said, delta by delta, as the content of a message and the events that tell of it."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json

from octavo.server.service.chat_turn import ChoiceDelta

Event = dict[str, Any]

_EMPTY: dict[str, dict[str, Any]] = {
    "text": {"type": "text", "text": "", "citations": None},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}
_DELTAS = {"text": "text_delta", "thinking": "thinking_delta"}


class ContentBlocks:
    """One block after the other: the next begins when the one before it has stopped.

    blocks  the content so far, whole when `stop` has been called

    The methods return events in order.
    """

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []
        self._is_open = False
        self._pieces: list[str] = []

    def add(self, delta: ChoiceDelta) -> list[Event]:
        """What is new."""
        events: list[Event] = []
        for kind, text in (("thinking", delta.reasoning), ("text", delta.content)):
            if text:
                if not self._is_open or self.blocks[-1]["type"] != kind:
                    events += self._start(dict(_EMPTY[kind]))
                events.append(self._delta({"type": _DELTAS[kind], kind: text}, text))
        for call in delta.tool_calls:
            if call.name is not None:
                events += self._start({"type": "tool_use", "id": call.id, "name": call.name, "input": {}})
            if call.arguments:
                events.append(self._delta({"type": "input_json_delta", "partial_json": call.arguments}, call.arguments))
        return events

    def stop(self) -> list[Event]:
        """End the open block, if there is one. The arguments of a call that was cut have what is whole of them."""
        if not self._is_open:
            return []
        self._is_open = False
        block, text, index = self.blocks[-1], "".join(self._pieces), len(self.blocks) - 1
        events: list[Event] = []
        if block["type"] == "tool_use":
            block["input"] = _as_input(text)
        else:
            block[block["type"]] = text
        if block["type"] == "thinking":  # clients wait for it, and send it back; nothing here is signed
            events.append(self._delta({"type": "signature_delta", "signature": ""}, ""))
        return [*events, {"type": "content_block_stop", "index": index}]

    def _start(self, block: dict[str, Any]) -> list[Event]:
        events = self.stop()
        self.blocks.append(block)
        self._is_open, self._pieces = True, []
        return [*events, {"type": "content_block_start", "index": len(self.blocks) - 1, "content_block": dict(block)}]

    def _delta(self, delta: dict[str, Any], text: str) -> Event:
        self._pieces.append(text)
        return {"type": "content_block_delta", "index": len(self.blocks) - 1, "delta": delta}


def _as_input(arguments: str) -> dict[str, Any]:
    """The object that the text is, or begins with; an empty one if it is none."""
    try:
        value = from_json(arguments, allow_partial=True)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
