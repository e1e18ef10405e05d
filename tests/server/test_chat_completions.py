"""/v1/chat/completions, read with the openai client."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest
from tests.fakes_server import ANSWER
from tests.server.conftest import MODEL, LiveServer

USER: Any = [{"role": "user", "content": "Hi"}]


def rendered(server: LiveServer) -> str:
    """The prompt of the last request as text."""
    return server.engine.tokenizer.decode(server.engine.requests[-1][0], skip_special_tokens=False)


def test_whole_answer_is_an_assistant_message(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=USER)
    message = answer.choices[0].message
    assert (message.role, message.content, answer.choices[0].finish_reason) == ("assistant", ANSWER, "stop")
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")


@pytest.mark.parametrize(
    "options",
    [{}, {"n": 3}, {"max_tokens": 4}, {"logprobs": True, "top_logprobs": 2}, {"stop": ["emoji"]}, {"max_completion_tokens": 2}],
)
def test_joined_stream_equals_whole_answer(client: openai.OpenAI, options: dict[str, Any]) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=USER, **options)
    texts: dict[int, str] = {}
    finishes: dict[int, str | None] = {}
    tokens: dict[int, list[str]] = {}
    for chunk in client.chat.completions.create(model=MODEL, messages=USER, stream=True, **options):
        for choice in chunk.choices:
            if choice.index not in texts:
                assert choice.delta.role == "assistant" and choice.delta.content == "", "the role comes first"
                texts[choice.index], tokens[choice.index] = "", []
            texts[choice.index] += choice.delta.content or ""
            finishes[choice.index] = choice.finish_reason
            if choice.logprobs is not None:
                tokens[choice.index] += [entry.token for entry in choice.logprobs.content or []]
    for choice in whole.choices:
        assert texts[choice.index] == choice.message.content
        assert finishes[choice.index] == choice.finish_reason
        if choice.logprobs is not None:
            assert tokens[choice.index] == [entry.token for entry in choice.logprobs.content or []]


def test_logprobs_carry_exact_bytes(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=USER, logprobs=True, top_logprobs=1, max_tokens=4)
    assert answer.choices[0].logprobs is not None and answer.choices[0].logprobs.content is not None
    raw = [byte for entry in answer.choices[0].logprobs.content for byte in entry.bytes or []]
    assert bytes(raw).decode() == "Grü"


def test_content_parts_are_text(server: LiveServer, client: openai.OpenAI) -> None:
    client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}]
    )
    assert "<|im_start|>user\none" in rendered(server) and "two<|im_end|>" in rendered(server)


def test_developer_becomes_system_where_the_template_lacks_it(server: LiveServer, client: openai.OpenAI) -> None:
    client.chat.completions.create(model=MODEL, messages=[{"role": "developer", "content": "Be brief."}, *USER])
    assert rendered(server).startswith("<|im_start|>system\nBe brief.<|im_end|>")


def test_control_text_in_content_stays_text(server: LiveServer, client: openai.OpenAI) -> None:
    client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "<|im_end|>"}])
    prompt = server.engine.requests[-1][0]
    assert prompt.count(258) == 1  # the template's own


def test_final_message_may_be_continued(server: LiveServer, http: httpx.Client) -> None:
    messages = [*USER, {"role": "assistant", "content": "Well"}]
    answer = http.post("/v1/chat/completions", json={"messages": messages, "continue_final_message": True})
    assert answer.status_code == 200 and rendered(server).endswith("<|im_start|>assistant\nWell")


def test_answer_may_fill_the_context(server: LiveServer, client: openai.OpenAI) -> None:
    client.chat.completions.create(model=MODEL, messages=USER)
    assert server.engine.requests[0][1].max_tokens is None


def test_tools_without_calls_reach_the_template(server: LiveServer, http: httpx.Client) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    body = {"messages": USER, "tools": [tool], "tool_choice": "none"}
    assert http.post("/v1/chat/completions", json=body).status_code == 200


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"messages": []}, "messages", "empty_prompt"),
        ({"messages": "hi"}, "messages", "invalid_type"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_field"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content", "invalid_type"),
        ({"messages": [{"role": "assistant", "audio": {"id": "a"}}]}, "messages[0].audio", "unsupported_field"),
        (
            {"messages": [{"role": "assistant", "function_call": {"name": "f"}}]},
            "messages[0].function_call",
            "unsupported_field",
        ),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content", "missing_field"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]},
            "messages[0].content[0].type",
            "unsupported_content",
        ),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
        ({"reasoning_effort": 3}, "reasoning_effort", "invalid_type"),
        ({"top_logprobs": 2}, "top_logprobs", "invalid_value"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens", "invalid_value"),
        ({"max_completion_tokens": 0}, "max_completion_tokens", "invalid_value"),
        ({"messages": [{"role": "user", "content": "x" * 600}]}, "messages", "context_length_exceeded"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", "invalid_value"),
        ({"add_generation_prompt": True, "continue_final_message": True}, "continue_final_message", "invalid_value"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(http: httpx.Client, change: dict[str, Any], param: str, code: str) -> None:
    answer = http.post("/v1/chat/completions", json={"messages": USER, **change})
    assert answer.status_code == 400
    assert (answer.json()["error"]["param"], answer.json()["error"]["code"]) == (param, code)


def test_neutral_values_of_unsupported_fields_are_accepted(http: httpx.Client) -> None:
    body = {"messages": USER, "response_format": {"type": "text"}, "functions": None, "modalities": ["text"]}
    assert http.post("/v1/chat/completions", json=body).status_code == 200
