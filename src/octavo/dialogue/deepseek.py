"""DeepSeek V3 and V3.1: calls between markers of their own, one block for all of them."""

from __future__ import annotations

from octavo.dialogue.json_calls import parsed, read_json
from octavo.dialogue.sink import Sink
from octavo.dialogue.source import Reader, Source
from octavo.dialogue.stream import call_or_text
from octavo.dialogue.tools import Tools

BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, SEPARATOR, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
MARKERS = (BEGIN, END, CALL, SEPARATOR, CALL_END)


def read_deepseek(source: Source, sink: Sink, tools: Tools) -> Reader[None]:
    """Text, and blocks of calls."""
    while True:
        marker = yield from source.copy_until(sink.content, (BEGIN,), drops=sink.stray(BEGIN), trims=True)
        if marker is None:
            return
        yield from call_or_text(source, sink, marker, _calls(source, sink))


def _calls(source: Source, sink: Sink) -> Reader[bool]:
    count = 0
    while True:
        yield from source.space()
        if (yield from source.accept(END)):
            return count > 0
        if not (yield from source.accept(CALL)):
            return count > 0
        if not (yield from _call(source, sink)):
            return False
        count += 1


def _call(source: Source, sink: Sink) -> Reader[bool]:
    """V3: function<sep>name, a line end and a fence of JSON. V3.1: name<sep>JSON."""
    head: list[str] = []
    if (yield from source.copy_until(head.append, (SEPARATOR,))) is None:
        return False
    name, arguments = "".join(head).strip(), list[str]()
    is_fenced = name == "function" and (yield from source.peek()) != "{"
    if is_fenced:
        line: list[str] = []
        if (yield from source.copy_until(line.append, ("\n",))) is None:
            return False
        name = "".join(line).strip()
        yield from source.space()
        yield from source.accept("```json")
    yield from source.space()
    if (yield from source.peek()) != "{" or not name:
        return False
    if not (yield from read_json(source, arguments.append)) or not isinstance(parsed("".join(arguments)), dict):
        return False
    yield from source.space()
    if is_fenced:
        yield from source.accept("```")
        yield from source.space()
    yield from source.accept(CALL_END)
    sink.begin_call(name)
    sink.arguments("".join(arguments))
    sink.end_call()
    return True
