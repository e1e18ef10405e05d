"""OutputItems: what the model said, delta by delta, as the items of a response and the events that tell of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.dialogue.calls import ToolCallDelta
from octavo.server.openai.logprobs import chat_logprobs
from octavo.server.service.chat_turn import ChoiceDelta
from octavo.step import TokenLogprobs
from octavo.text.tokenizer import Tokenizer

Event = dict[str, Any]

_ID_PREFIX = {"reasoning": "rs", "message": "msg", "function_call": "fc"}
_NAMES = {"reasoning": "reasoning_text", "message": "output_text"}
"""Type of an item with text -> what its part and its events are called."""


class OutputItems:
    """One item after the other: the next begins when the one before it has ended.

    items  the finished ones and the open one, as they stand in the answer

    The methods return events without their sequence numbers, in order.
    """

    def __init__(self, response_id: str, tokenizer: Tokenizer, num_logprobs: int | None) -> None:
        """num_logprobs: alternatives for each token of a text; None: no logprobs."""
        self.items: list[dict[str, Any]] = []
        self._suffix = response_id.partition("_")[2]
        self._tokenizer = tokenizer
        self._num_logprobs = num_logprobs
        self._open: dict[str, Any] | None = None
        self._pieces: list[str] = []
        self._logprobs: list[dict[str, Any]] = []
        self._waiting: list[TokenLogprobs] = []

    def add(self, delta: ChoiceDelta) -> list[Event]:
        """What is new. Logprobs of tokens that gave no text yet go with the next text of a message."""
        events: list[Event] = []
        self._waiting += delta.logprobs or ()
        if delta.reasoning:
            self._begin("reasoning", events)
            events.append(self._text_event(delta.reasoning))
        if delta.content:
            self._begin("message", events)
            events.append(self._text_event(delta.content))
        for call in delta.tool_calls:
            self._add_call(call, events)
        return events

    def finish(self, status: str) -> list[Event]:
        """The end: status is what the last item has become. An answer of nothing is an empty message."""
        events: list[Event] = []
        if not self.items:
            self._begin("message", events)
        if self._waiting and self._open is not None and self._open["type"] == "message":
            events.append(self._text_event(""))
        self._end(status, events)
        return events

    def _add_call(self, call: ToolCallDelta, events: list[Event]) -> None:
        if call.name is not None:
            self._end("completed", events)
            item = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": ""}
            self._start(item, events)
        if call.arguments:
            self._pieces.append(call.arguments)
            events.append(self._event("response.function_call_arguments.delta", delta=call.arguments))

    def _begin(self, kind: str, events: list[Event]) -> None:
        """Open an item of text, unless the open one is of this kind."""
        if self._open is not None and self._open["type"] == kind:
            return
        self._end("completed", events)
        item: dict[str, Any] = {"type": kind, "content": []}
        if kind == "message":
            item["role"] = "assistant"
        else:
            item |= {"summary": [], "encrypted_content": None}
        self._start(item, events)
        events.append(self._event("response.content_part.added", content_index=0, part=self._part(kind, "", [])))

    def _start(self, item: dict[str, Any], events: list[Event]) -> None:
        head = {"id": f"{_ID_PREFIX[item['type']]}_{self._suffix}_{len(self.items)}", "status": "in_progress"}
        self._open = head | item
        self._pieces, self._logprobs = [], []
        self.items.append(self._open)
        events.append({"type": "response.output_item.added", "output_index": len(self.items) - 1, "item": dict(self._open)})

    def _end(self, status: str, events: list[Event]) -> None:
        item = self._open
        if item is None:
            return
        text = "".join(self._pieces)
        if item["type"] == "function_call":
            item["arguments"] = text
            if status == "completed":  # what was cut is no JSON
                events.append(self._event("response.function_call_arguments.done", name=item["name"], arguments=text))
        else:
            part = self._part(item["type"], text, self._logprobs)
            item["content"] = [part]
            said = {"logprobs": part["logprobs"]} if item["type"] == "message" else {}
            events.append(self._event(f"response.{part['type']}.done", content_index=0, text=text, **said))
            events.append(self._event("response.content_part.done", content_index=0, part=part))
        item["status"] = status
        self._open = None
        events.append({"type": "response.output_item.done", "output_index": len(self.items) - 1, "item": item})

    def _text_event(self, text: str) -> Event:
        assert self._open is not None
        kind = self._open["type"]
        self._pieces.append(text)
        said: dict[str, Any] = {}
        if kind == "message":
            said["logprobs"] = self._logprobs_json(self._waiting)
            self._logprobs += said["logprobs"]
            self._waiting = []
        return self._event(f"response.{_NAMES[kind]}.delta", content_index=0, delta=text, **said)

    def _logprobs_json(self, entries: Sequence[TokenLogprobs]) -> list[dict[str, Any]]:
        if self._num_logprobs is None:
            return []
        content: list[dict[str, Any]] = chat_logprobs(entries, self._tokenizer, self._num_logprobs)["content"]
        return content

    def _part(self, kind: str, text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
        part: dict[str, Any] = {"type": _NAMES[kind], "text": text}
        return part | {"annotations": [], "logprobs": logprobs} if kind == "message" else part

    def _event(self, kind: str, **fields: Any) -> Event:
        """An event of the open item, which is the last."""
        return {"type": kind, "item_id": self.items[-1]["id"], "output_index": len(self.items) - 1, **fields}
