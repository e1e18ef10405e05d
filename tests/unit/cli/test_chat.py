"""octavo chat: the session and the Markdown stream, with a scripted source."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from octavo.cli.chat import Session
from octavo.cli.conversation import Message, Sampling
from octavo.cli.markdown_stream import MarkdownStream, split_blocks
from octavo.errors import ContextLengthError, EngineDeadError, OctavoError


class Script:
    """A TextSource that gives the pieces it was told to, and notes what it was asked."""

    model_name = "script"

    def __init__(self, *pieces: str, error: OctavoError | None = None, interrupted: bool = False) -> None:
        self.pieces, self.error, self.interrupted = pieces, error, interrupted
        self.asked: list[list[Message]] = []

    def answer(self, messages: Sequence[Message], sampling: Sampling) -> Iterator[str]:
        self.asked.append([dict(message) for message in messages])
        yield from self.pieces
        if self.error is not None:
            raise self.error

    def continuation(self, prompt: str, sampling: Sampling) -> Iterator[str]:
        yield from self.pieces

    def settings(self, sampling: Sampling) -> str:
        return f"those of the script and {sampling.given()}"

    def close(self) -> None:
        """Nothing to let go of."""


def talk(monkeypatch: pytest.MonkeyPatch, source: Script, *lines: str, system: str | None = None) -> str:
    """Run a session over these input lines; what it printed."""
    given_lines = iter(lines)

    def read(prompt: str = "") -> str:
        try:
            return next(given_lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", read)
    out = io.StringIO()
    Session(source, Console(file=out, width=80), Sampling(), system).run()
    return out.getvalue()


def test_turns_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Script("Hel", "lo")
    assert "Hello" in talk(monkeypatch, source, "one", "two")
    assert [message["content"] for message in source.asked[1]] == ["one", "Hello", "two"]


def test_the_settings_in_force_are_shown_at_the_start_and_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert talk(monkeypatch, Script("ok")).count("settings: those of the script and {}") == 1
    assert talk(monkeypatch, Script("ok"), "/settings").count("settings: those of the script and {}") == 2


def test_reset_keeps_the_system_message_only(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Script("ok")
    talk(monkeypatch, source, "one", "/reset", "two", system="Be brief.")
    assert [message["role"] for message in source.asked[1]] == ["system", "user"]


def test_system_command_sets_and_removes_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Script("ok")
    talk(monkeypatch, source, "/system Speak Latin.", "one", "/system", "two")
    assert source.asked[0][0] == {"role": "system", "content": "Speak Latin."}
    assert [message["role"] for message in source.asked[1]] == ["user"]


def test_exit_ends_and_unknown_commands_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Script("ok")
    printed = talk(monkeypatch, source, "/hlep", "/help", "/exit", "never asked")
    assert "/hlep is no command" in printed and "/reset" in printed and source.asked == []


def test_backslash_continues_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Script("ok")
    talk(monkeypatch, source, "first\\", "second")
    assert source.asked[0][0]["content"] == "first\nsecond"


def test_stopped_answer_is_kept_and_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Script("half", interrupted=True)
    assert "(stopped)" in talk(monkeypatch, source, "one", "two")
    assert source.asked[1][1]["content"] == "half"


def test_refused_question_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Script(error=ContextLengthError("too long"))
    assert "too long (/reset makes room)" in talk(monkeypatch, source, "one", "two")
    assert [message["content"] for message in source.asked[1]] == ["two"]


def test_dead_engine_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineDeadError):
        talk(monkeypatch, Script(error=EngineDeadError("gone")), "one")


@given(st.lists(st.sampled_from(["a", "\n", "\n\n", "```", "```py\n", "~~~\n", "# b", " ", "- c"]), max_size=24))
def test_blocks_do_not_depend_on_where_the_stream_was_cut(pieces: list[str]) -> None:
    whole, rest = split_blocks("".join(pieces))
    found: list[str] = []
    tail = ""
    for piece in pieces:
        blocks, tail = split_blocks(tail + piece)
        found += blocks
    assert (found, tail) == (whole, rest)


def test_blank_lines_inside_a_fence_do_not_end_a_block() -> None:
    blocks, rest = split_blocks("text\n\n```\na\n\nb\n```\n\nend")
    assert (blocks, rest) == (["text", "```\na\n\nb\n```"], "end")


def test_terminal_shows_rendered_markdown_and_pipe_shows_the_source() -> None:
    for terminal in (True, False):
        out = io.StringIO()
        stream = MarkdownStream(Console(file=out, width=80, force_terminal=terminal))
        for piece in ("**bo", "ld**\n\n", "next"):
            stream.feed(piece)
        stream.close()
        assert ("**bold**" in out.getvalue()) == (not terminal)
        assert "next" in out.getvalue()
