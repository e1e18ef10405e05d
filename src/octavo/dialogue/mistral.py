"""Mistral: [TOOL_CALLS] and a list of calls, or [TOOL_CALLS]name[ARGS]{...} for each call."""

from __future__ import annotations

import re

from octavo.dialogue.json_calls import parsed, read_call_list, read_json
from octavo.dialogue.sink import Sink
from octavo.dialogue.source import Reader, Source
from octavo.dialogue.stream import call_or_text
from octavo.dialogue.tools import Tools

BEGIN, CALL_ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_NAME = re.compile(r"[a-zA-Z0-9_.-]+")
_MAX_NAME = 256


def read_mistral(source: Source, sink: Sink, tools: Tools) -> Reader[None]:
    """Text, and calls behind their marker."""
    while True:
        marker = yield from source.copy_until(sink.content, (BEGIN,), drops=sink.stray(BEGIN), trims=True)
        if marker is None:
            return
        yield from call_or_text(source, sink, marker, _call(source, sink))


def _call(source: Source, sink: Sink) -> Reader[bool]:
    yield from source.space()
    if (yield from source.peek()) in ("[", "{"):
        return (yield from read_call_list(source, sink, None))
    name = yield from _name(source)
    if not _NAME.fullmatch(name):
        return False
    if (yield from source.accept(CALL_ID)):
        yield from _name(source)
    yield from source.accept(ARGS)
    yield from source.space()
    if (yield from source.peek()) != "{":
        return False
    parts: list[str] = []
    if not (yield from read_json(source, parts.append)) or not isinstance(parsed("".join(parts)), dict):
        return False
    sink.begin_call(name)
    sink.arguments("".join(parts))
    sink.end_call()
    return True


def _name(source: Source) -> Reader[str]:
    """A name, up to the bracket or brace behind it."""
    name = ""
    while len(name) < _MAX_NAME:
        character = yield from source.peek()
        if not character or character in "[{":
            break
        name += source.take(1)
    return name.strip()
