"""Qwen3-Coder: <tool_call><function=name><parameter=key>value</parameter></function></tool_call>; values are plain text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from octavo.dialogue.json_calls import parsed
from octavo.dialogue.sink import Sink
from octavo.dialogue.source import Reader, Source
from octavo.dialogue.stream import call_or_text
from octavo.dialogue.tools import Tools

BEGIN, END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"


def read_qwen_coder(source: Source, sink: Sink, tools: Tools) -> Reader[None]:
    """Text with calls; a model may leave <tool_call> out."""
    while True:
        marker = yield from source.copy_until(sink.content, (BEGIN, FUNCTION), drops=sink.stray(BEGIN, FUNCTION), trims=True)
        if marker is None:
            return
        yield from call_or_text(source, sink, marker, _call(source, sink, tools, marker.endswith(FUNCTION)))


def _call(source: Source, sink: Sink, tools: Tools, is_open: bool) -> Reader[bool]:
    yield from source.space()
    if not is_open and not (yield from source.accept(FUNCTION)):
        return False
    name = yield from _upto(source, ">")
    if not name:
        return False
    arguments: dict[str, Any] = {}
    while True:
        yield from source.space()
        if (yield from source.accept(FUNCTION_END)):
            break
        if not (yield from source.accept(PARAMETER)):
            return False
        key = yield from _upto(source, ">")
        value = yield from _upto(source, PARAMETER_END)
        if key is None or value is None:
            return False
        arguments[key] = _value(value.removeprefix("\n").removesuffix("\n"), tools.property_schema(name, key))
    yield from source.space()
    yield from source.accept(END)
    sink.begin_call(name)
    sink.arguments(json.dumps(arguments, ensure_ascii=False))
    sink.end_call()
    return True


def _upto(source: Source, end: str) -> Reader[str | None]:
    parts: list[str] = []
    if (yield from source.copy_until(parts.append, (end,))) is None:
        return None
    return "".join(parts)


def _value(text: str, schema: Any) -> Any:
    """A value as its schema has it: a text stays one where a text is wanted, else it is read as JSON if it is any."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind == "string":
        return text
    value = parsed(text)
    return text if value is ... else value
