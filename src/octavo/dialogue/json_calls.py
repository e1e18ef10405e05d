"""Readers of JSON: values as they are written, and objects that name a function and its arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from octavo.dialogue.sink import Sink
from octavo.dialogue.source import Reader, Source

NAME_KEYS = ("name", "function", "tool_name")
ARGUMENT_KEYS = ("arguments", "parameters", "args")
_KEYS = frozenset((*NAME_KEYS, *ARGUMENT_KEYS, "id", "type", "tool_call_id", "index"))
_STRUCTURE = re.compile(r'["{}\[\]]')
_STRING_PART = re.compile(r'["\\]')
_SCALAR_END = re.compile(r"[,}\]\s]")


def read_json(source: Source, emit: Callable[[str], None]) -> Reader[bool]:
    """Pass one JSON value on, as it is written. False if the text ends inside; what comes inside is not checked."""
    first = yield from source.peek()
    if first == '"':
        return (yield from _read_string(source, emit))
    if first not in ("{", "["):
        return (yield from _read_scalar(source, emit))
    depth = 0
    while True:
        found = source.search(_STRUCTURE)
        if found is None:
            emit(source.take(len(source.rest)))
            if not (yield from source.more()):
                return False
        elif found[0] == '"':
            emit(source.take(found.start()))
            if not (yield from _read_string(source, emit)):
                return False
        else:
            depth += 1 if found[0] in "{[" else -1
            emit(source.take(found.end()))
            if depth == 0:
                return True


def _read_string(source: Source, emit: Callable[[str], None]) -> Reader[bool]:
    emit(source.take(1))
    while True:
        found = source.search(_STRING_PART)
        if found is None:
            emit(source.take(len(source.rest)))
            if not (yield from source.more()):
                return False
        elif found[0] == '"':
            emit(source.take(found.end()))
            return True
        else:
            emit(source.take(found.start()))
            pair = yield from source.peek(2)
            emit(source.take(len(pair)))
            if len(pair) < 2:
                return False


def _read_scalar(source: Source, emit: Callable[[str], None]) -> Reader[bool]:
    while True:
        found = source.search(_SCALAR_END)
        if found is not None:
            emit(source.take(found.start()))
            return True
        emit(source.take(len(source.rest)))
        if not (yield from source.more()):
            return False


def read_text(source: Source) -> Reader[str | None]:
    """A JSON string, decoded; None if none comes, or a broken one."""
    if (yield from source.peek()) != '"':
        return None
    parts: list[str] = []
    if not (yield from _read_string(source, parts.append)):
        return None
    value = parsed("".join(parts))
    return value if isinstance(value, str) else None


def read_call_list(source: Source, sink: Sink, names: frozenset[str] | None) -> Reader[bool]:
    """One call object, or a list of them; a list holds at least one. names: the only names that make a call; None: any."""
    if not (yield from source.accept("[")):
        return (yield from read_call_object(source, sink, names))
    while True:
        yield from source.space()
        if not (yield from read_call_object(source, sink, names)):
            return False
        yield from source.space()
        if (yield from source.accept("]")):
            return True
        if not (yield from source.accept(",")):
            return False


def read_call_object(source: Source, sink: Sink, names: frozenset[str] | None) -> Reader[bool]:
    """{"name": ..., "arguments": {...}}, also with other words for the keys, and in {"function": {...}}."""
    name = yield from _read_members(source, sink, names, may_nest=True)
    if name is None:
        return False
    sink.end_call()
    return True


def _read_members(source: Source, sink: Sink, names: frozenset[str] | None, *, may_nest: bool) -> Reader[str | None]:
    """The name of the call that an object makes, which is begun and has its arguments; None if it makes none."""
    if not (yield from source.accept("{")):
        return None
    name: str | None = None
    early: str | None = None
    has_arguments = False
    while True:
        yield from source.space()
        key = yield from read_text(source)
        if names is not None and key not in _KEYS:
            return None
        yield from source.space()
        if key is None or not (yield from source.accept(":")):
            return None
        yield from source.space()
        if key in NAME_KEYS and name is None:
            if key == "function" and may_nest and (yield from source.peek()) == "{":
                name = yield from _read_members(source, sink, names, may_nest=False)
                has_arguments = name is not None
            else:
                name = yield from read_text(source)
            if not name or (names is not None and name not in names):
                return None
        elif key in ARGUMENT_KEYS and not has_arguments:
            has_arguments = True
            if name is not None:
                sink.begin_call(name)
                if not (yield from _read_arguments(source, sink, sink.arguments)):
                    return None
            else:
                parts: list[str] = []
                if not (yield from _read_arguments(source, sink, parts.append)):
                    return None
                early, has_arguments = "".join(parts), False
        elif not (yield from read_json(source, _ignore)):
            return None
        yield from source.space()
        if (yield from source.accept("}")):
            break
        if not (yield from source.accept(",")):
            return None
    if name is not None and not has_arguments:
        sink.begin_call(name)
        sink.arguments(early or "{}")
    return name


def _read_arguments(source: Source, sink: Sink, emit: Callable[[str], None]) -> Reader[bool]:
    """An object as it is written; one that is written inside a string, as what it says; null as an empty one."""
    first = yield from source.peek()
    if first == "{":
        if sink.streams_calls:
            return (yield from read_json(source, emit))
        parts: list[str] = []
        if not (yield from read_json(source, parts.append)):
            return False
        emit("".join(parts))
        return isinstance(parsed("".join(parts)), dict)
    if first == '"':
        text = yield from read_text(source)
        emit(text or "{}")
        return text == "" or isinstance(parsed(text or ""), dict)
    emit("{}")
    return (yield from source.accept("null"))


def parsed(text: str) -> object:
    """The JSON value of a text; an Ellipsis where it is none."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return ...


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _ignore(text: str) -> None:
    del text
