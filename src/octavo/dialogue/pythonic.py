"""Calls in the syntax of Python, as Gemma's documentation shows them. They are read, never run."""

from __future__ import annotations

import ast
import json
import re

from octavo.dialogue.sink import Sink
from octavo.dialogue.source import Reader, Source

MAX_LENGTH = 65_536
MAX_NAME = 128
_STRUCTURE = re.compile(r"""["'()\[\]{}]""")
_FENCES = ("```tool_code", "```python", "```")


def read_pythonic(source: Source, sink: Sink, names: frozenset[str]) -> Reader[bool]:
    """One call or a list of calls that is the answer. Arguments must be literals, given by name."""
    yield from source.space()
    is_fenced = False
    for fence in _FENCES:
        if (yield from source.accept(fence)):
            is_fenced = True
            yield from source.space()
            break
    if not (yield from _begins_a_call(source, names)):
        return False
    text = yield from _expression(source)
    calls = None if text is None else _calls(text, names)
    if not calls:
        return False
    for name, arguments in calls:
        sink.begin_call(name)
        sink.arguments(arguments)
        sink.end_call()
    yield from source.space()
    if is_fenced:
        yield from source.accept("```")
    return True


def _begins_a_call(source: Source, names: frozenset[str]) -> Reader[bool]:
    """Whether "name(" comes next, perhaps behind a bracket; nothing is taken, and it is known as early as can be."""
    length = 1
    while True:
        ahead = yield from source.peek(length)
        word = ahead.removeprefix("[").lstrip()
        name, paren, _ = word.partition("(")
        if paren:
            return name in names
        if len(ahead) < length or length > MAX_NAME or not any(known.startswith(name) for known in names):
            return False
        length += 1


def _expression(source: Source) -> Reader[str | None]:
    """Text up to where all brackets are closed."""
    taken, depth = "", 0
    while len(taken) <= MAX_LENGTH:
        found = source.search(_STRUCTURE)
        if found is None:
            taken += source.take(len(source.rest))
            if not (yield from source.more()):
                return None
            continue
        taken += source.take(found.end())
        if found[0] in "\"'":
            rest = yield from _string_rest(source, found[0])
            if rest is None:
                return None
            taken += rest
            continue
        depth += 1 if found[0] in "([{" else -1
        if depth == 0:
            return taken
    return None


def _string_rest(source: Source, quote: str) -> Reader[str | None]:
    taken = ""
    while True:
        character = yield from source.peek()
        if not character:
            return None
        pair = (yield from source.peek(2)) if character == "\\" else character
        taken += source.take(len(pair))
        if pair == quote:
            return taken


def _calls(text: str, names: frozenset[str]) -> list[tuple[str, str]] | None:
    try:
        body = ast.parse(text.strip(), mode="eval").body
        nodes = body.elts if isinstance(body, ast.List) else [body]
        return [_call(node, names) for node in nodes]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _call(node: ast.expr, names: frozenset[str]) -> tuple[str, str]:
    """Name and arguments as JSON. Raises ValueError for what is no call of a known function with literal arguments."""
    if not isinstance(node, ast.Call) or node.args or any(keyword.arg is None for keyword in node.keywords):
        raise ValueError("not a call with named arguments")
    name = ast.unparse(node.func)
    if name not in names:
        raise ValueError("not a known function")
    arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    return name, json.dumps(arguments, ensure_ascii=False, allow_nan=False)
