"""Calls without a marker: the answer is one. Llama 3, Gemma, and whatever model was told to write JSON."""

from __future__ import annotations

from octavo.dialogue import hermes
from octavo.dialogue.json_calls import read_call_list
from octavo.dialogue.pythonic import read_pythonic
from octavo.dialogue.sink import Sink
from octavo.dialogue.source import Reader, Source
from octavo.dialogue.stream import call_or_text
from octavo.dialogue.tools import Tools

PYTHON_TAG = "<|python_tag|>"
_FENCES = ("```json", "```tool_code", "```tool_call", "```python", "```")


def read_llama(source: Source, sink: Sink, tools: Tools) -> Reader[None]:
    """Llama 3: {"name": ..., "parameters": {...}}, perhaps behind <|python_tag|>; further calls behind semicolons."""
    yield from _read_first(source, sink, tools.names, tag=PYTHON_TAG)
    yield from source.copy_until(sink.content, (), drops=sink.stray(), trims=True)


def read_generic(source: Source, sink: Sink, tools: Tools) -> Reader[None]:
    """A call as JSON that is the answer, also in a code fence, or between the tags of Hermes."""
    yield from _read_first(source, sink, tools.names)
    yield from hermes.read_hermes(source, sink, tools)


def read_gemma(source: Source, sink: Sink, tools: Tools) -> Reader[None]:
    """Gemma 3: as above, or Python: [f(a=1), g()], f(a=1), in a fence of tool_code or not."""
    if not (yield from _read_first(source, sink, tools.names)):
        yield from call_or_text(source, sink, "", read_pythonic(source, sink, tools.names))
    yield from hermes.read_hermes(source, sink, tools)


def _read_first(source: Source, sink: Sink, names: frozenset[str], tag: str = "") -> Reader[bool]:
    if not (yield from call_or_text(source, sink, "", _calls(source, sink, names, tag))):
        return False
    while True:  # further ones, each on its own: what follows the last good one is text
        if not (yield from call_or_text(source, sink, "", _next_call(source, sink, names))):
            return True


def _calls(source: Source, sink: Sink, names: frozenset[str], tag: str) -> Reader[bool]:
    yield from source.space()
    yield from source.accept(tag)
    yield from source.space()
    is_fenced = yield from _open_fence(source)
    if not (yield from read_call_list(source, sink, names)):
        return False
    if is_fenced:
        yield from source.space()
        yield from source.accept("```")
    return True


def _next_call(source: Source, sink: Sink, names: frozenset[str]) -> Reader[bool]:
    yield from source.space()
    if not (yield from source.accept(";")):
        yield from source.accept(",")
    yield from source.space()
    return (yield from _calls(source, sink, names, ""))


def _open_fence(source: Source) -> Reader[bool]:
    for fence in _FENCES:
        if (yield from source.accept(fence)):
            yield from source.space()
            return True
    return False
