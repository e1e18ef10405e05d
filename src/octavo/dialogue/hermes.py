"""Hermes, Qwen 2.5 and 3: <tool_call>{"name": ..., "arguments": {...}}</tool_call>, as often as there are calls."""

from __future__ import annotations

from octavo.dialogue.json_calls import read_call_list
from octavo.dialogue.sink import Sink
from octavo.dialogue.source import Reader, Source
from octavo.dialogue.stream import call_or_text
from octavo.dialogue.tools import Tools

BEGIN, END = "<tool_call>", "</tool_call>"


def read_hermes(source: Source, sink: Sink, tools: Tools) -> Reader[None]:
    """Text, with calls in it. A model may write a list of calls between one pair of tags, or forget the closing one."""
    while True:
        marker = yield from source.copy_until(sink.content, (BEGIN,), drops=sink.stray(BEGIN), trims=True)
        if marker is None:
            return
        yield from call_or_text(source, sink, marker, _call(source, sink))


def _call(source: Source, sink: Sink) -> Reader[bool]:
    yield from source.space()
    if not (yield from read_call_list(source, sink, None)):
        return False
    yield from source.space()
    yield from source.accept(END)
    return True
