"""Tool calls as they come out of a model's text: whole, or in deltas."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ToolCall:
    """One call of an answer. arguments is the JSON text that the model wrote, not parsed and not written anew."""

    id: str
    name: str
    arguments: str


@dataclass(slots=True)
class ToolCallDelta:
    """What is new of call `index` of a choice. id and name stand in the first delta of a call and are None in later ones."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(slots=True)
class MessageDelta:
    """What is new of one message: the three may come together, then reasoning is before content, and content before calls."""

    reasoning: str = ""
    content: str = ""
    tool_calls: list[ToolCallDelta] = field(default_factory=list)


def join_calls(deltas: list[ToolCallDelta]) -> list[ToolCall]:
    """The calls that these deltas, all of one message and in order, come to."""
    calls: list[ToolCall] = []
    for delta in deltas:
        if delta.index == len(calls):
            calls.append(ToolCall(delta.id or "", delta.name or "", delta.arguments))
        else:
            calls[delta.index].arguments += delta.arguments
    return calls
