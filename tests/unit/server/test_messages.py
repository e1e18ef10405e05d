"""Messages of a chat body become what chat templates expect."""

from __future__ import annotations

from octavo.server.openai.messages import read_messages


def test_arguments_of_past_tool_calls_reach_the_template_as_objects() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = read_messages([{"role": "assistant", "tool_calls": [call]}], template_knows_developer=True)
    assert messages[0]["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": 1}}
