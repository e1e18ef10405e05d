"""/v1/completions, read with the openai client."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest
from tests.fakes_server import ANSWER
from tests.server.conftest import MODEL, LiveServer


def test_whole_answer_has_text_usage_and_fingerprint(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="Hello", max_tokens=200)
    assert answer.choices[0].text == ANSWER
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None and answer.usage.prompt_tokens == 5
    assert answer.usage.total_tokens == 5 + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details is not None and answer.usage.prompt_tokens_details.cached_tokens == 2
    assert answer.system_fingerprint is not None and answer.system_fingerprint.startswith("octavo-")
    assert answer.id.startswith("cmpl-")


@pytest.mark.parametrize(
    "options",
    [
        {"prompt": "Hello"},
        {"prompt": ["one", "two", "three"], "n": 2, "temperature": 0.5},
        {"prompt": [1, 2, 3], "echo": True},
        {"prompt": [[1, 2], [3]], "echo": True, "logprobs": 2},
        {"prompt": "Hello", "logprobs": 3, "max_tokens": 5},
        {"prompt": "Hello", "stop": ["emoji", "日"]},
        {"prompt": "Hello", "stop": "emoji", "extra_body": {"include_stop_str_in_output": True}},
        {"prompt": "Hello", "echo": True, "max_tokens": 0, "logprobs": 1},
        {"prompt": "Hello", "max_tokens": 3},
    ],
)
def test_joined_stream_equals_whole_answer(client: openai.OpenAI, options: dict[str, Any]) -> None:
    options = {"model": MODEL, "max_tokens": 100, **options}
    whole = client.completions.create(**options)
    streamed: dict[int, dict[str, Any]] = {}
    for chunk in client.completions.create(**options, stream=True):
        for choice in chunk.choices:
            joined = streamed.setdefault(choice.index, {"text": "", "tokens": [], "offsets": [], "values": [], "finish": None})
            joined["text"] += choice.text
            if choice.logprobs is not None:
                joined["tokens"] += choice.logprobs.tokens or []
                joined["offsets"] += choice.logprobs.text_offset or []
                joined["values"] += choice.logprobs.token_logprobs or []
            assert joined["finish"] is None, "nothing may follow the finish reason"
            joined["finish"] = choice.finish_reason
    assert sorted(streamed) == [choice.index for choice in whole.choices]
    for choice in whole.choices:
        joined = streamed[choice.index]
        assert (joined["text"], joined["finish"]) == (choice.text, choice.finish_reason)
        if choice.logprobs is not None:
            assert joined["tokens"] == choice.logprobs.tokens
            assert joined["offsets"] == choice.logprobs.text_offset
            assert joined["values"] == choice.logprobs.token_logprobs


def test_echo_puts_the_prompt_before_the_answer(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="Hi: ", echo=True, max_tokens=4, logprobs=1)
    choice = answer.choices[0]
    assert choice.text == "Hi: " + "Grü"
    assert choice.logprobs is not None and choice.logprobs.tokens is not None and choice.logprobs.token_logprobs is not None
    assert choice.logprobs.tokens[:5] == ["H", "i", ":", " ", "G"]
    assert choice.logprobs.token_logprobs[0] is None


def test_prompt_alone_with_max_tokens_zero_counts_no_completion(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="Hello", echo=True, max_tokens=0)
    assert answer.choices[0].text == "Hello"
    assert answer.usage is not None and answer.usage.completion_tokens == 0


def test_impossible_token_has_a_finite_logprob(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="x", max_tokens=1, logprobs=3)
    assert answer.choices[0].logprobs is not None and answer.choices[0].logprobs.top_logprobs is not None
    assert min(answer.choices[0].logprobs.top_logprobs[0].values()) == -9999.0


def test_usage_chunk_comes_last_and_only_when_asked_for(client: openai.OpenAI) -> None:
    chunks = list(
        client.completions.create(
            model=MODEL, prompt="Hello", max_tokens=3, stream=True, stream_options={"include_usage": True}
        )
    )
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].choices == [] and chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 3
    assert all(chunk.usage is None for chunk in client.completions.create(model=MODEL, prompt="x", max_tokens=3, stream=True))


def test_continuous_usage_counts_up(http: httpx.Client) -> None:
    body = {
        "prompt": "x",
        "max_tokens": 2,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    text = http.post("/v1/completions", json=body).text
    assert '"completion_tokens":1,' in text and '"completion_tokens":2,' in text
    assert text.endswith("data: [DONE]\n\n")


def test_fields_reach_the_engine(server: LiveServer, http: httpx.Client) -> None:
    body = {
        "prompt": "x",
        "top_k": 7,
        "min_p": 0.1,
        "repetition_penalty": 1.2,
        "min_tokens": 2,
        "ignore_eos": True,
        "stop_token_ids": [5],
        "seed": 11,
        "logit_bias": {"3": -1.5},
        "skip_special_tokens": False,
        "cache_salt": "pepper",
        "temperature": 1,
    }
    assert http.post("/v1/completions", json=body).status_code == 200
    _, params, priority, salt = server.engine.requests[0]
    assert (params.top_k, params.min_p, params.repetition_penalty, params.min_tokens) == (7, 0.1, 1.2, 2)
    assert (params.ignore_eos, params.stop_token_ids, params.seed, params.skip_special_tokens) == (True, [5], 11, False)
    assert (params.logit_bias, params.temperature, priority, salt) == ({3: -1.5}, 1.0, 0, "pepper")


def test_generation_config_fills_absent_fields_only(server: LiveServer, http: httpx.Client) -> None:
    server.engine.generation_defaults = {"temperature": 0.3, "top_p": 0.9}
    http.post("/v1/completions", json={"prompt": "x", "top_p": 0.5, "temperature": None})
    params = server.engine.requests[0][1]
    assert (params.temperature, params.top_p) == (0.3, 0.5)


def test_harmless_fields_are_accepted(http: httpx.Client) -> None:
    body = {"prompt": "x", "user": "u", "metadata": {"a": "b"}, "store": False, "best_of": 1, "suffix": None}
    assert http.post("/v1/completions", json=body).status_code == 200


def test_prompt_logprobs_have_one_entry_per_prompt_token(http: httpx.Client) -> None:
    answer = http.post("/v1/completions", json={"prompt": "abc", "prompt_logprobs": 1, "max_tokens": 1}).json()
    entries = answer["choices"][0]["prompt_logprobs"]
    assert entries[0] is None and len(entries) == 3
    assert list(entries[1].values())[0]["decoded_token"] == "b"


def test_error_after_the_first_token_is_an_event_and_no_done_follows(server: LiveServer, client: openai.OpenAI) -> None:
    server.engine.fail_after_tokens = 3
    with pytest.raises(openai.APIError, match="internal error"):
        list(client.completions.create(model=MODEL, prompt="x", max_tokens=9, stream=True))
    text = httpx.post(f"{server.url}/v1/completions", json={"prompt": "x", "stream": True}).text
    assert "[DONE]" not in text and '"code":"internal_error"' in text
