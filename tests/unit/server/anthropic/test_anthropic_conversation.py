"""Messages of content blocks become the messages of the same conversation in a chat."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.errors import InvalidRequestError
from octavo.server.anthropic.conversation import continues_last, read_conversation

USER = {"role": "user", "content": "Hi"}
USE = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}, "cache_control": {"type": "ephemeral"}}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "2"}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": ""}
CALLS = [{"id": "t", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value, "citations": None}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def test_the_system_text_comes_first() -> None:
    assert read_conversation([USER], "Be brief.") == [{"role": "system", "content": "Be brief."}, USER]
    (system, _) = read_conversation([USER], [text("a"), text("b")])
    assert system == {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([text("Yes.")], {"content": "Yes."}),
        (
            [{"type": "thinking", "thinking": "Hm.", "signature": ""}, text("Yes.")],
            {"content": "Yes.", "reasoning_content": "Hm."},
        ),
        ([{"type": "redacted_thinking", "data": "x"}, text("Yes.")], {"content": "Yes."}),
        ([text("Yes."), USE], {"content": "Yes.", "tool_calls": CALLS}),
        ([USE], {"content": "", "tool_calls": CALLS}),
        ([], {"content": ""}),
    ],
)
def test_blocks_of_the_assistant_are_one_message(blocks: list[Any], message: dict[str, Any]) -> None:
    assert read_conversation([USER, assistant(*blocks), USER], None)[1] == {"role": "assistant", **message}


def test_results_are_messages_of_tools_in_their_place() -> None:
    messages = read_conversation([assistant(USE), user(text("a"), RESULT, RESULT, text("b"))], None)
    assert [message["role"] for message in messages] == ["assistant", "user", "tool", "tool", "user"]
    assert messages[2] == {"role": "tool", "tool_call_id": "t", "content": "2"}


@pytest.mark.parametrize(
    ("change", "content"),
    [
        ({}, "2"),
        ({"content": None}, ""),
        ({"content": [text("2")]}, "2"),
        ({"is_error": False}, "2"),
        ({"is_error": True}, "Error: 2"),
        ({"is_error": True, "content": [text("2")]}, "Error: 2"),
        ({"is_error": True, "content": [text("2"), text("3")]}, [{"type": "text", "text": t} for t in ("Error:", "2", "3")]),
    ],
)
def test_contents_of_results(change: dict[str, Any], content: Any) -> None:
    assert read_conversation([assistant(USE), user({**RESULT, **change})], None)[1]["content"] == content


def test_a_last_message_of_the_assistant_is_how_the_answer_begins() -> None:
    assert continues_last(read_conversation([USER, assistant(text("I"))], None))
    assert not continues_last(read_conversation([USER], None))
    for last in (assistant(USE), assistant()):
        with pytest.raises(InvalidRequestError, match="messages ends with"):
            continues_last(read_conversation([USER, last], None))


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ({}, "messages"),
        ([1], "messages[0]"),
        ([{"role": "tool", "content": "x"}], "messages[0].role"),
        ([{"role": {}, "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": 1}], "messages[0].content"),
        ([user("x")], "messages[0].content[0]"),
        ([user({"type": "image", "source": {}})], "messages[0].content[0].type"),
        ([user({"type": "document", "source": {}})], "messages[0].content[0].type"),
        ([user({"type": ["text"]})], "messages[0].content[0].type"),
        ([user({"type": "text"})], "messages[0].content[0].text"),
        ([user(USE)], "messages[0].content[0].type"),
        ([user(RESULT)], "messages[0].content[0].tool_use_id"),
        ([assistant(USE), user({**RESULT, "is_error": "yes"})], "messages[1].content[0].is_error"),
        ([assistant(USE), user({**RESULT, "content": [{"type": "image"}]})], "messages[1].content[0].content[0].type"),
        ([assistant({**USE, "input": "{}"})], "messages[0].content[0].input"),
        ([assistant({**USE, "id": 1})], "messages[0].content[0].id"),
        ([assistant(RESULT)], "messages[0].content[0].type"),
        ([{"role": "system", "content": [{"type": "image"}]}], "messages[0].content[0].type"),
    ],
)
def test_what_is_wrong_is_named(messages: Any, param: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        read_conversation(messages, None)
    assert refused.value.param == param and len(refused.value.message) < 400


@pytest.mark.parametrize("system", [1, {"type": "text"}, [1], [{"type": "image"}], [{"type": "text", "text": None}]])
def test_a_wrong_system_is_named(system: Any) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        read_conversation([USER], system)
    assert (refused.value.param or "").startswith("system")
