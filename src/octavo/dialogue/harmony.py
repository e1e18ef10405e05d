"""Harmony, the form of gpt-oss: messages on channels. analysis is reasoning, final is the answer, commentary holds tool calls.

<|channel|>analysis<|message|>...<|end|>
<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>
"""

from __future__ import annotations

import re

from octavo.dialogue.json_calls import parsed, read_json
from octavo.dialogue.sink import Sink
from octavo.dialogue.source import Reader, Source
from octavo.dialogue.stream import call_or_text
from octavo.dialogue.tools import Tools

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
MARKERS = (START, CHANNEL, MESSAGE, CONSTRAIN, END, CALL, RETURN)
_ENDS = (END, CALL, RETURN, START, CHANNEL)
_RECIPIENT = re.compile(r"to=functions\.([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")


def read_harmony(source: Source, sink: Sink, tools: Tools) -> Reader[None]:
    """All messages of an answer. The prompt has written <|start|>assistant; text without a channel is the answer."""
    header = ""
    before = yield from source.copy_until(sink.content, (CHANNEL, MESSAGE, START), drops=(END, CALL, RETURN, CONSTRAIN))
    while before is not None:
        parts: list[str] = []
        if before == MESSAGE:
            end = yield from _message(source, sink, header)
            header = ""
        else:
            header += before if before == CHANNEL else ""
            end = yield from source.copy_until(parts.append, (MESSAGE, CHANNEL, START))
            header += "".join(parts)
        before = end


def _message(source: Source, sink: Sink, header: str) -> Reader[str | None]:
    """The text of a message with this header; returns the marker that begins the next one."""
    recipient, channel = _RECIPIENT.search(header), _CHANNEL.search(header)
    if recipient is not None:
        yield from call_or_text(source, sink, "", _call(source, sink, recipient[1]))
    emit = sink.reasoning if channel is not None and channel[1] == "analysis" else sink.content
    end = yield from source.copy_until(emit, _ENDS, drops=(CONSTRAIN, MESSAGE))
    while end is not None and end not in (START, CHANNEL):
        end = yield from source.copy_until(_leave_out, (START, CHANNEL))
    return end


def _call(source: Source, sink: Sink, name: str) -> Reader[bool]:
    arguments: list[str] = []
    yield from source.space()
    if (yield from source.peek()) == "{" and not (yield from read_json(source, arguments.append)):
        return False
    yield from source.space()
    text = "".join(arguments) or "{}"
    if (yield from source.peek()) not in ("", "<") or not isinstance(parsed(text), dict):
        return False
    sink.begin_call(name)
    sink.arguments(text)
    sink.end_call()
    return True


def _leave_out(text: str) -> None:
    del text
