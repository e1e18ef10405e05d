"""Sink: where readers put what they found. It numbers calls, gives them ids, and takes back what turns out to be no call."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable

from octavo.dialogue.calls import MessageDelta, ToolCallDelta

_ALPHANUMERIC = string.ascii_letters + string.digits


def new_call_id() -> str:
    """A fresh id in OpenAI's shape."""
    return "call_" + "".join(secrets.choice(_ALPHANUMERIC) for _ in range(24))


def new_short_id() -> str:
    """Nine letters and digits, as Mistral's templates ask for."""
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(9))


class Sink:
    """What was found in one message.

    streams_calls  what comes is known to be well formed, so a call is passed on while it is written. Otherwise `hold` keeps
                   calls back until `commit`, and `drop` forgets them.
    max_calls      calls beyond it are left out; None: no limit
    hidden         markers that are control tokens: a client never sees them
    num_complete   calls that have come to their end
    has_reasoned   there was reasoning
    """

    def __init__(
        self,
        *,
        streams_calls: bool = False,
        max_calls: int | None = None,
        hidden: tuple[str, ...] = (),
        make_id: Callable[[], str] = new_call_id,
    ) -> None:
        self.streams_calls = streams_calls
        self.hidden = hidden
        self.num_complete = 0
        self.has_reasoned = False
        self._max_calls = max_calls
        self._make_id = make_id
        self._delta = MessageDelta()
        self._num_calls = 0
        self._held: tuple[list[ToolCallDelta], int, int] | None = None

    def take(self) -> MessageDelta:
        """What was found since the last time."""
        delta, self._delta = self._delta, MessageDelta()
        return delta

    def stray(self, *markers: str) -> tuple[str, ...]:
        """Hidden markers that stand for nothing where only these are looked for."""
        return tuple(marker for marker in self.hidden if marker not in markers)

    def reasoning(self, text: str) -> None:
        self.has_reasoned = self.has_reasoned or bool(text)
        self._delta.reasoning += text

    def content(self, text: str) -> None:
        """White space by itself says nothing beside a call."""
        if self._num_calls == 0 or not text.isspace():
            self._delta.content += text

    def begin_call(self, name: str) -> None:
        self._num_calls += 1
        self._call_delta(ToolCallDelta(self._num_calls - 1, self._make_id(), name))

    def arguments(self, text: str) -> None:
        """More of the arguments of the call that was begun last."""
        if not text:
            return
        calls = self._delta.tool_calls if self._held is None else self._held[0]
        if calls and calls[-1].index == self._num_calls - 1:
            calls[-1].arguments += text
        else:
            self._call_delta(ToolCallDelta(self._num_calls - 1, arguments=text))

    def end_call(self) -> None:
        if self._max_calls is None or self._num_calls <= self._max_calls:
            self.num_complete += 1

    def hold(self) -> None:
        if not self.streams_calls:
            self._held = ([], self._num_calls, self.num_complete)

    def commit(self) -> None:
        if self._held is not None:
            calls, self._held = self._held[0], None
            self._delta.tool_calls += calls

    def drop(self) -> None:
        if self._held is not None:
            _, self._num_calls, self.num_complete = self._held
            self._held = None

    def _call_delta(self, delta: ToolCallDelta) -> None:
        if self._max_calls is not None and delta.index >= self._max_calls:
            return
        (self._delta.tool_calls if self._held is None else self._held[0]).append(delta)
