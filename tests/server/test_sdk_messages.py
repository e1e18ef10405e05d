"""What came out goes back in: messages as the SDKs write them, and fields that ask for nothing."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest
from tests.server.conftest import MODEL, LiveServer

USER = {"role": "user", "content": "Hi"}
CALL = {"id": "c1", "type": "function", "index": 0, "function": {"name": "add", "arguments": '{"a": 1}'}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "2"}
SDK_KEYS = {
    "refusal": None,
    "annotations": [],
    "audio": None,
    "function_call": None,
    "tool_calls": None,
    "parsed": None,
    "provider_specific_fields": {"refusal": None},
    "reasoning": None,
    "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}],
    "id": "msg_1",
    "status": "completed",
}


def rendered(server: LiveServer) -> str:
    return server.engine.tokenizer.decode(server.engine.requests[-1][0], skip_special_tokens=False)


def ask(http: httpx.Client, *messages: Any, **fields: Any) -> httpx.Response:
    return http.post("/v1/chat/completions", json={"messages": [USER, *messages], "max_tokens": 3, **fields})


@pytest.mark.parametrize("change", [{}, {"tool_calls": []}, {"annotations": None, "name": ""}, {"reasoning_content": "hm"}])
def test_keys_of_the_sdks_in_an_answer_are_accepted_back(
    server: LiveServer, http: httpx.Client, change: dict[str, Any]
) -> None:
    assert ask(http, {"role": "assistant", "content": "Well", **SDK_KEYS, **change}, USER).status_code == 200
    assert "assistant\nWell<|im_end|>" in rendered(server)


@pytest.mark.parametrize("content", [{"content": None}, {}, {"content": ""}, {"content": []}])
def test_no_content_beside_tool_calls_is_an_empty_text(server: LiveServer, http: httpx.Client, content: dict[str, Any]) -> None:
    assert ask(http, {"role": "assistant", **SDK_KEYS, "tool_calls": [CALL], **content}, RESULT).status_code == 200
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    assert f"<|im_start|>assistant\n{call}<|im_end|>" in rendered(server)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "Well", "cache_control": {"type": "ephemeral"}},
        {"type": "output_text", "text": "Well", "annotations": [], "logprobs": []},
        {"type": "input_text", "text": "Well"},
        {"type": "refusal", "refusal": "Well"},
        "Well",
    ],
)
@pytest.mark.parametrize("role", ["assistant", "user"])
def test_parts_of_every_kind_of_text_are_text(server: LiveServer, http: httpx.Client, role: str, part: Any) -> None:
    assert ask(http, {"role": role, "content": [part]}).status_code == 200
    assert f"{role}\nWell<|im_end|>" in rendered(server)


def test_a_refusal_that_comes_back_is_what_was_said(server: LiveServer, http: httpx.Client) -> None:
    assert ask(http, {"role": "assistant", "content": None, "refusal": "I cannot."}, USER).status_code == 200
    assert "assistant\nI cannot.<|im_end|>" in rendered(server)


@pytest.mark.parametrize("call", [{"arguments": None}, {"arguments": ""}, {"arguments": {"a": 1}}, {"arguments": "not json"}])
def test_arguments_of_a_call_may_be_text_or_an_object_or_nothing(http: httpx.Client, call: dict[str, Any]) -> None:
    message = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", **call}}]}
    assert ask(http, message, RESULT).status_code == 200


NOTHING: list[Any] = [None, "", [], {}, False]


@pytest.mark.parametrize("value", NOTHING)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_empty_values_ask_for_nothing_in_every_field(http: httpx.Client, path: str, value: Any) -> None:
    names = [
        *("temperature", "top_p", "top_k", "n", "stop", "stop_token_ids", "logit_bias", "seed", "user", "logprobs", "stream"),
        *("stream_options", "tools", "tool_choice", "response_format", "functions", "audio", "guided_json", "metadata"),
        *("best_of", "suffix", "a_field_of_tomorrow", "extra_body", "model", "cache_salt", "bad_words", "reasoning_effort"),
    ]
    if path == "/v1/completions":
        names = [name for name in names if name not in ("tools", "tool_choice")]
    body: dict[str, Any] = {"prompt": "x"} if path == "/v1/completions" else {"messages": [USER]}
    for name in names:
        answer = http.post(path, json={**body, "max_tokens": 2, name: value})
        assert answer.status_code == 200, (name, answer.text)


@pytest.mark.parametrize(
    "change",
    [
        {"n": 2, "best_of": 2},
        {"best_of": 1},
        {"n": 2, "temperature": 0},
        {"n": 2.0, "max_tokens": 5.0, "top_k": -1.0, "seed": 1e3, "min_tokens": 0.0, "logprobs": 0.0},
        {"stop_token_ids": [1.0], "logit_bias": {"5": 1}, "prompt": [1.0, 2]},
        {"stream": True, "stream_options": {"include_obfuscation": True, "include_usage": None, "of_tomorrow": False}},
        {"stream_options": {"include_usage": False}},
        {"length_penalty": 1, "use_beam_search": False, "detokenize": True, "spaces_between_special_tokens": False},
    ],
)
def test_neutral_values_ask_for_nothing(http: httpx.Client, change: dict[str, Any]) -> None:
    answer = http.post("/v1/completions", json={"prompt": "x", "max_tokens": 2, **change})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("change", [{"top_logprobs": 0}, {"logprobs": False, "top_logprobs": 0}, {"verbosity": "medium"}])
def test_neutral_values_of_a_chat_ask_for_nothing(http: httpx.Client, change: dict[str, Any]) -> None:
    assert ask(http, **change).status_code == 200


@pytest.mark.parametrize(("name", "value"), [("max_tokens", 2.5), ("n", True), ("seed", 1e30), ("prompt", [1.5])])
def test_what_is_no_whole_number_is_refused(http: httpx.Client, name: str, value: Any) -> None:
    answer = http.post("/v1/completions", json={"prompt": "x", name: value})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == name


@pytest.mark.parametrize("max_tokens", [512, 10**6, 2**31 - 1])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_an_answer_is_cut_where_the_context_ends(server: LiveServer, http: httpx.Client, path: str, max_tokens: int) -> None:
    server.engine.answer = "y" * 600
    body: dict[str, Any] = {"prompt": "x" * 500} if path == "/v1/completions" else {"messages": [USER]}
    answer = http.post(path, json={**body, "max_tokens": max_tokens}).json()
    assert answer["choices"][0]["finish_reason"] == "length" and answer["usage"]["total_tokens"] == 512


@pytest.mark.parametrize("size", [512, 600, 100_000])
def test_a_prompt_that_does_not_fit_is_refused_in_the_words_that_clients_know(http: httpx.Client, size: int) -> None:
    for answer in (
        http.post("/v1/completions", json={"prompt": "x" * size}),
        ask(http, {"role": "user", "content": "x" * size}),
    ):
        error = answer.json()["error"]
        assert answer.status_code in (400, 413)
        if answer.status_code == 400:
            assert "this model's maximum context length is 512 tokens" in error["message"]
            assert error["code"] == "context_length_exceeded"


def test_usage_grows_from_nothing_and_only_where_it_was_asked_for(client: openai.OpenAI) -> None:
    def usages(**options: Any) -> list[Any]:
        chunks = client.chat.completions.create(
            model=MODEL,
            messages=[USER],
            max_tokens=3,
            stream=True,
            stream_options=options,
            n=2,  # type: ignore[call-overload]
        )
        return [chunk.usage for chunk in chunks]

    growing = usages(include_usage=True, continuous_usage_stats=True)
    assert [usage.completion_tokens for usage in growing[:2]] == [0, 0] and growing[0].prompt_tokens > 0
    assert growing[-1].completion_tokens == 6
    assert usages(continuous_usage_stats=True) == [None] * (len(growing) - 1)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_of_the_sdk_goes_back_in_twice(server: LiveServer, client: openai.OpenAI, stream: bool) -> None:
    server.engine.answer = "Grün."
    messages: list[Any] = [USER]
    for _ in range(2):
        if stream:
            with client.chat.completions.stream(model=MODEL, messages=messages) as events:
                message: Any = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(model=MODEL, messages=messages).choices[0].message
        messages += [message, message.model_dump(), USER]
    assert client.chat.completions.parse(model=MODEL, messages=messages).choices[0].message.parsed is None
    assert rendered(server).count("<|im_start|>assistant\nGr") == 4


@pytest.mark.parametrize(
    "body",
    [
        {"model": "x" * 900},
        {"prompt": "x", "x" * 5000: 1},
        {"prompt": "x", "logit_bias": {"x" * 5000: 1}},
        {"prompt": "x", "tool_choice": "x" * 5000},
        {"prompt": "x", "temperature": "x" * 5000},
        {"prompt": "x", "stream_options": {"x" * 5000: 1}},
        {"prompt": "x", "max_tokens": int("9" * 4000)},
        {"prompt": [int("9" * 4000)]},
        {"messages": [{"role": "x" * 5000, "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "x" * 5000}]}]},
        {"messages": [USER], "chat_template_kwargs": {"x" * 5000: 1, "messages": 1}},
    ],
)
def test_errors_never_repeat_long_values(http: httpx.Client, body: dict[str, Any]) -> None:
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    for answer in (http.post(path, json=body), http.get("/" + "x" * 5000), http.request("X" * 10, path)):
        assert answer.status_code >= 400 and "x" * 201 not in answer.text and "9" * 201 not in answer.text
