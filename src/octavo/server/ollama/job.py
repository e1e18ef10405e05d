"""Job: one request of Ollama's API on its way to an answer: one object, or lines of them (NDJSON), the last with the counts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from starlette.responses import Response

from octavo.dialogue.calls import ToolCall, ToolCallDelta, join_calls
from octavo.server.error_shapes import ollama_shape
from octavo.server.errors import fault_of
from octavo.server.ollama.answers import Clock, encode
from octavo.server.openai.logprobs import chat_logprobs
from octavo.server.service.chat_turn import ChatTurn
from octavo.server.service.service import Service
from octavo.server.sse import EventStream, JsonAnswer
from octavo.step import TokenLogprobs

NDJSON = b"application/x-ndjson"
Head = Callable[[str, str, list[ToolCall]], dict[str, Any]]
"""(content, thinking, calls) -> the object that says so."""


class Job:
    """Runs a turn of one choice.

    num_top  alternatives to show of each token, where logprobs were asked for
    """

    def __init__(self, turn: ChatTurn, service: Service, clock: Clock, head: Head, *, num_top: int) -> None:
        self._turn = turn
        self._tokenizer = service.engine.tokenizer
        self._clock = clock
        self._head = head
        self._num_top = num_top

    def response(self, streams: bool) -> Response:
        if streams:
            return EventStream(self._stream(), on_error=_error_line, content_type=NDJSON)
        return JsonAnswer(self._answer)

    async def _answer(self) -> bytes:
        [choice] = await self._turn.collect()
        said = self._head(choice.content or "", choice.reasoning or "", choice.tool_calls)
        end = self._clock.end(self._turn.generation, choice.finish_reason)
        return encode({**said, **self._logprobs(choice.logprobs), **end})

    async def _stream(self) -> AsyncGenerator[bytes, None]:
        """Lines. Calls of tools stand whole in one line, which comes when the last one is complete."""
        calls: list[ToolCallDelta] = []
        finish_reason: str | None = None
        async with aclosing(self._turn.run()) as outputs:
            async for deltas in outputs:
                for delta in deltas:
                    finish_reason = delta.finish_reason
                    calls += delta.tool_calls
                    whole = join_calls(calls) if finish_reason is not None else []
                    if delta.content or delta.reasoning or whole or delta.logprobs:
                        said = self._head(delta.content, delta.reasoning, whole)
                        yield _line({**said, **self._logprobs(delta.logprobs), "done": False})
        yield _line({**self._head("", "", []), **self._clock.end(self._turn.generation, finish_reason)})

    def _logprobs(self, entries: Sequence[TokenLogprobs] | None) -> dict[str, Any]:
        """{"logprobs": [{"token", "logprob", "bytes", "top_logprobs"}]}; nothing where none were asked for, or none are new."""
        return {"logprobs": chat_logprobs(entries, self._tokenizer, self._num_top)["content"]} if entries else {}


def _line(value: dict[str, Any]) -> bytes:
    return encode(value) + b"\n"


def _error_line(error: BaseException) -> bytes:
    """The line that ends a stream in which error was raised."""
    return ollama_shape(fault_of(error)) + b"\n"
