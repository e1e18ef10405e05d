"""Messages of a chat body become what chat templates expect."""

from __future__ import annotations

from octavo.server.openai.messages import read_messages


def test_past_tool_calls_and_their_results_are_kept() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    result = {"role": "tool", "tool_call_id": "1", "content": "2"}
    messages = read_messages([{"role": "assistant", "tool_calls": [call]}, result], template_knows_developer=True)
    assert messages == [{"role": "assistant", "content": "", "tool_calls": [call]}, result]
