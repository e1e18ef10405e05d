"""Deltas of a turn made by hand: what a model that thinks, talks and calls would say."""

from __future__ import annotations

from octavo.dialogue.calls import ToolCallDelta
from octavo.server.service.chat_turn import ChoiceDelta


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
