"""Deltas of a turn made by hand: what a model that thinks, talks and calls would say."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest

from octavo.dialogue.calls import ToolCallDelta, join_calls
from octavo.request import NO_OPTIONS
from octavo.sampling_params import SamplingParams
from octavo.server.service.chat_turn import ChatRequest, ChoiceDelta, ChoiceMessage
from octavo.server.service.generation import EncodedPrompt, Generation, Usage
from octavo.server.service.service import Service


def thought(text: str) -> ChoiceDelta:
    return ChoiceDelta(index=0, reasoning=text)


def said(text: str) -> ChoiceDelta:
    return ChoiceDelta(index=0, content=text)


def called(index: int, arguments: str, name: str | None = None) -> ChoiceDelta:
    """With a name: the first delta of the call."""
    call = ToolCallDelta(index=index, id=None if name is None else f"call_{index}", name=name, arguments=arguments)
    return ChoiceDelta(index=0, tool_calls=[call])


THINK_TALK_CALL = [
    thought("Let me "),
    thought("look."),
    said("I will "),
    said("ask."),
    called(0, "", "weather"),
    called(0, '{"city": "'),
    called(0, 'Bern"}'),
    called(1, "{}", "time"),
]
"""A turn with everything in it, in the usual order."""


class ScriptedTurn:
    """A ChatTurn that says what it is told, one delta per output of the engine, and then ends for finish_reason."""

    def __init__(self, deltas: list[ChoiceDelta], finish_reason: str) -> None:
        self._deltas = [*deltas, ChoiceDelta(index=0, finish_reason=finish_reason)]
        self.generation = Generation(
            request_id="x_1", prompts=[EncodedPrompt(None, [1] * 9)], params=SamplingParams(), options=NO_OPTIONS
        )
        self.usage = Usage(prompt_tokens=9, completion_tokens=7, cached_tokens=4)

    async def run(self) -> AsyncGenerator[list[ChoiceDelta], None]:
        for delta in self._deltas:
            yield [delta]

    async def collect(self) -> list[ChoiceMessage]:
        message = ChoiceMessage(
            index=0,
            reasoning="".join(delta.reasoning for delta in self._deltas) or None,
            content="".join(delta.content for delta in self._deltas),
            tool_calls=join_calls([call for delta in self._deltas for call in delta.tool_calls]),
            token_ids=[],
            logprobs=None,
            finish_reason=self._deltas[-1].finish_reason,
            stop_reason=None,
        )
        return [message]


@contextmanager
def scripted(route: ModuleType, deltas: list[ChoiceDelta], finish_reason: str) -> Iterator[list[ChatRequest]]:
    """While it is open, requests to this route are answered so; gives the requests that arrived."""
    asked: list[ChatRequest] = []

    async def begin_turn(service: Service, request: ChatRequest, request_id: str) -> ScriptedTurn:
        asked.append(request)
        return ScriptedTurn(deltas, finish_reason)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(route, "begin_turn", begin_turn)
        yield asked
