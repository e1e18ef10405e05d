"""The past of a conversation comes to the template in a shape that it takes."""

from __future__ import annotations

import re
from typing import Any

from tests.unit.dialogue.recorded import TOOLS

from octavo.dialogue.dialect import choose_dialect
from octavo.dialogue.history import as_template_wants, introduction, short_id
from octavo.dialogue.stream import MessageStream
from octavo.dialogue.tools import Tools

USER: Any = {"role": "user", "content": "Hi"}
SYSTEM: Any = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}


def call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_template_that_knows_tools_gets_them_as_they_are() -> None:
    dialect = choose_dialect({"default": "<tool_call>"}, knows_tools=True)
    past = [USER, {"role": "assistant", "content": "", "tool_calls": [call("call_1", "now", "{}")]}]
    assert as_template_wants(dialect, past, TOOLS) == (past, TOOLS) and as_template_wants(dialect, past, None) == (past, None)


def test_ids_are_shortened_for_templates_that_take_no_others() -> None:
    dialect = choose_dialect({"default": "[TOOL_CALLS]"}, knows_tools=True)
    past: list[Any] = [
        {"role": "assistant", "content": "", "tool_calls": [call("call_abc-1", "now", "{}"), call("abcDEF123", "now", "{}")]},
        {"role": "tool", "tool_call_id": "call_abc-1", "content": "1"},
        {"role": "tool", "tool_call_id": "abcDEF123", "content": "2"},
    ]
    messages, _ = as_template_wants(dialect, past, TOOLS)
    ids = [entry["id"] for entry in messages[0]["tool_calls"]]
    assert ids == [messages[1]["tool_call_id"], messages[2]["tool_call_id"]] and ids[1] == "abcDEF123"
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", entry) for entry in ids) and short_id("a") != short_id("b")
    assert past[1]["tool_call_id"] == "call_abc-1", "what was given is not touched"


def test_a_template_without_tools_gets_text_that_the_parser_reads_back() -> None:
    for template in ("", "<start_of_turn>", "<|start_header_id|>"):
        dialect = choose_dialect({"default": template}, knows_tools=False)
        calls = [call("1", "get_weather", {"city": "서울"}), call("2", "now", "{}")]
        past = [
            SYSTEM,
            USER,
            {"role": "assistant", "content": "", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "1", "content": "맑음"},
            {"role": "tool", "tool_call_id": "2", "content": [{"type": "text", "text": "9:00"}]},
        ]
        messages, tools = as_template_wants(dialect, past, TOOLS)
        assert tools is None and [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
        assert messages[0]["content"] == f"Be brief.\n\n{introduction(dialect, TOOLS)}"
        assert messages[3]["content"] == ("<tool_response>\n맑음\n</tool_response>\n<tool_response>\n9:00\n</tool_response>")
        stream = dialect.stream(Tools(TOOLS))
        assert isinstance(stream, MessageStream)
        found = [*stream.push(messages[2]["content"]).tool_calls, *stream.finish().tool_calls]
        assert [(entry.name, entry.arguments) for entry in found] == [("get_weather", '{"city": "서울"}'), ("now", "{}")]
        assert past[0] == SYSTEM


def test_tools_stand_in_the_users_message_where_the_template_refuses_a_system_message() -> None:
    source = "{{ raise_exception('System role not supported') }}<start_of_turn>"
    dialect = choose_dialect({"default": source}, knows_tools=False)
    messages, _ = as_template_wants(dialect, [USER], TOOLS)
    assert messages == [{"role": "user", "content": f"{introduction(dialect, TOOLS)}\n\nHi"}]


def test_nothing_is_added_without_tools() -> None:
    dialect = choose_dialect({"default": ""}, knows_tools=False)
    assert as_template_wants(dialect, [USER], None) == ([USER], None)
