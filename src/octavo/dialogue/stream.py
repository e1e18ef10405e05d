"""MessageStream: one message on its way: text goes in, cut anywhere; reasoning, content and tool calls come out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octavo.dialogue.calls import MessageDelta
from octavo.dialogue.sink import Sink
from octavo.dialogue.source import Reader, Source

MessageReader = Callable[[Source, Sink], Reader[Any]]


class MessageStream:
    """The joined deltas of `push` and `finish` depend on the whole text alone."""

    def __init__(self, read: MessageReader, sink: Sink) -> None:
        self._source = Source()
        self._sink = sink
        self._reader: Reader[Any] | None = read(self._source, sink)

    def push(self, text: str) -> MessageDelta:
        """What a piece of text comes to."""
        self._source.feed(text)
        return self._go_on()

    def finish(self) -> MessageDelta:
        """The rest, when no more text comes."""
        self._source.ended = True
        return self._go_on()

    @property
    def made_calls(self) -> bool:
        """Whether a call was completed."""
        return self._sink.num_complete > 0

    @property
    def has_reasoned(self) -> bool:
        return self._sink.has_reasoned

    def _go_on(self) -> MessageDelta:
        if self._reader is not None and next(self._reader, self) is self:
            self._reader = None
        if self._reader is None and self._source.rest:  # a reader that is done leaves text; what follows is content
            self._sink.content(self._source.take(len(self._source.rest)))
        return self._sink.take()


def call_or_text(source: Source, sink: Sink, marker: str, call: Reader[bool]) -> Reader[bool]:
    """Read a call behind a marker that was taken. What turns out to be none is text from there on, the marker included."""
    source.keep()
    sink.hold()
    if (yield from call):
        source.release()
        sink.commit()
        return True
    if sink.streams_calls:
        source.release()
        return False
    sink.drop()
    source.rewind()
    for hidden in sink.hidden:
        marker = marker.replace(hidden, "")
    sink.content(marker)
    return False
