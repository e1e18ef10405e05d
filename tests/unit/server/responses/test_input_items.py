"""Input items become the messages of the same conversation in a chat."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.errors import InvalidRequestError
from octavo.server.responses.input_items import read_input

CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}', "id": "fc_1", "status": "completed"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "2"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes.", "annotations": []}]}
CALLS = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]


def read(value: Any, instructions: str | None = None, knows_developer: bool = False) -> list[dict[str, Any]]:
    return read_input(value, instructions, template_knows_developer=knows_developer)


def test_a_text_is_a_message_of_the_user_behind_the_instructions() -> None:
    assert read("Hi") == [{"role": "user", "content": "Hi"}]
    assert read("Hi", "Be brief.") == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(("knows", "role"), [(True, "developer"), (False, "system")])
def test_a_developer_is_the_system_where_the_template_does_not_know_it(knows: bool, role: str) -> None:
    assert read([{"role": "developer", "content": "x"}], None, knows)[0]["role"] == role


@pytest.mark.parametrize(
    ("items", "turn"),
    [
        ([MESSAGE], {"content": "Yes."}),
        ([REASONING, MESSAGE], {"content": "Yes.", "reasoning_content": "Hm."}),
        ([REASONING, MESSAGE, CALL], {"content": "Yes.", "reasoning_content": "Hm.", "tool_calls": CALLS}),
        ([CALL], {"content": "", "tool_calls": CALLS}),
        ([MESSAGE, CALL, MESSAGE], {"content": "Yes.Yes.", "tool_calls": CALLS}),
        ([{"type": "reasoning", "encrypted_content": "x"}, MESSAGE], {"content": "Yes."}),
    ],
)
def test_the_items_of_one_answer_are_one_message(items: list[Any], turn: dict[str, Any]) -> None:
    assert read([{"role": "user", "content": "?"}, *items]) == [{"role": "user", "content": "?"}, {"role": "assistant", **turn}]


def test_two_answers_stay_two() -> None:
    assert len(read([MESSAGE, MESSAGE])) == 2
    assert len(read([REASONING, MESSAGE, REASONING, MESSAGE])) == 2
    assert [message["role"] for message in read([CALL, OUTPUT, MESSAGE])] == ["assistant", "tool", "assistant"]


def test_an_output_is_the_message_of_a_tool() -> None:
    assert read([CALL, OUTPUT])[1] == {"role": "tool", "tool_call_id": "c", "content": "2"}
    parts = {**OUTPUT, "output": [{"type": "input_text", "text": "2"}, {"type": "input_text", "text": "3"}]}
    assert read([CALL, parts])[1]["content"] == [{"type": "text", "text": "2"}, {"type": "text", "text": "3"}]


@pytest.mark.parametrize(
    ("value", "param"),
    [
        (1, "input"),
        ("", "input"),
        ([], "input"),
        (None, "input"),
        ([1], "input[0]"),
        ([{"role": "tool", "content": "x"}], "input[0].role"),
        ([{"role": ["user"], "content": "x"}], "input[0].role"),
        ([{"role": "user"}], "input[0].content"),
        ([{"role": "user", "content": 1}], "input[0].content"),
        ([{"role": "user", "content": ["x"]}], "input[0].content[0]"),
        ([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}], "input[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}], "input[0].content[0].type"),
        ([{"role": "user", "content": [{"type": {}}]}], "input[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "input_text", "text": 1}]}], "input[0].content[0].text"),
        ([OUTPUT], "input[0].call_id"),
        ([CALL, {**OUTPUT, "call_id": "d"}], "input[1].call_id"),
        ([{**CALL, "call_id": None}], "input[0].call_id"),
        ([{**CALL, "name": 1}], "input[0].name"),
        ([{**CALL, "arguments": {}}], "input[0].arguments"),
        ([{"type": "item_reference", "id": "msg_1"}], "input[0].type"),
        ([{"type": "web_search_call", "id": "ws_1"}], "input[0].type"),
        ([{"type": []}], "input[0].type"),
        ([{"type": "reasoning", "content": "x"}], "input[0].content"),
        ([{}] * 5000, "input"),
    ],
)
def test_what_is_wrong_is_named(value: Any, param: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        read(value)
    assert refused.value.param == param and len(refused.value.message) < 400
