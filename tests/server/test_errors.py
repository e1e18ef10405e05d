"""Every failure has the one error shape and the right status; no input makes a 500."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.server.conftest import MAX_BODY_SIZE, MODEL, LiveServer, live_server

from octavo.config.server import ServerConfig
from octavo.errors import ContextLengthError, EngineDeadError, OverloadedError

PATHS = ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize")
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def shared() -> Iterator[LiveServer]:
    with live_server(ServerConfig(max_body_size=MAX_BODY_SIZE, disable_log_requests=True)) as live:
        yield live


@pytest.fixture
def http(shared: LiveServer) -> Iterator[httpx.Client]:
    """One server for the whole table: bad requests leave nothing behind in it."""
    with httpx.Client(base_url=shared.url, timeout=15) as client:
        yield client


def assert_error(answer: httpx.Response, status: int, code: str, param: str | None = None) -> None:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert sorted(error) == ["code", "message", "param", "type"]
    assert (error["code"], error["param"]) == (code, param), error
    assert error["message"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"[]", "invalid_json"),
        (b'"text"', "invalid_json"),
        (b'{"prompt": "\xff"}', "invalid_json"),
        (b'{"prompt": "\\ud800"}', "invalid_json"),
        (b'{"prompt": "\xed\xa0\x80"}', "invalid_json"),
        (b'{"temperature": NaN}', "invalid_json"),
        (b'{"temperature": Infinity}', "invalid_json"),
        (b'{"temperature": 1e999}', "invalid_json"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "invalid_json"),
        (b'{"metadata": ' + b"[" * 65 + b"]" * 65 + b"}", "json_too_deep"),
        (b'{"metadata": ' + b"[" * 20000 + b"]" * 20000 + b"}", "json_too_deep"),
        (b'{"a": 1} {"b": 2}', "invalid_json"),
    ],
)
def test_unreadable_bodies_are_refused(http: httpx.Client, path: str, raw: bytes, code: str) -> None:
    assert_error(http.post(path, content=raw, headers=JSON), 400, code)


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"prompt": None}, "prompt", "invalid_type"),
        ({"prompt": 5}, "prompt", "invalid_type"),
        ({"prompt": {}}, "prompt", "invalid_type"),
        ({"prompt": []}, "prompt", "empty_prompt"),
        ({"prompt": ""}, "prompt", "empty_prompt"),
        ({"prompt": ["a", ""]}, "prompt", "empty_prompt"),
        ({"prompt": [[]]}, "prompt", "empty_prompt"),
        ({"prompt": ["a", 1]}, "prompt", "invalid_type"),
        ({"prompt": [1, True]}, "prompt", "invalid_type"),
        ({"prompt": [[1], [2.5]]}, "prompt", "invalid_type"),
        ({"prompt": [-1]}, "prompt", "token_out_of_range"),
        ({"prompt": [260]}, "prompt", "token_out_of_range"),
        ({"prompt": [10**300]}, "prompt", "token_out_of_range"),
        ({"prompt": ["a"] * 257}, "prompt", "invalid_value"),
        ({"prompt": "x" * 600}, "prompt", "context_length_exceeded"),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"max_tokens": -1}, "max_tokens", "invalid_value"),
        ({"max_tokens": 10**30}, "max_tokens", "invalid_value"),
        ({"max_tokens": 2.5}, "max_tokens", "invalid_type"),
        ({"max_tokens": "5"}, "max_tokens", "invalid_type"),
        ({"temperature": -0.1}, "temperature", "invalid_value"),
        ({"temperature": "hot"}, "temperature", "invalid_type"),
        ({"temperature": 1e308}, "temperature", "invalid_value"),
        ({"top_p": 0}, "top_p", "invalid_value"),
        ({"top_p": 1.1}, "top_p", "invalid_value"),
        ({"top_k": -2}, "top_k", "invalid_value"),
        ({"min_p": 2}, "min_p", "invalid_value"),
        ({"n": 0}, "n", "invalid_value"),
        ({"n": 65}, "n", "invalid_value"),
        ({"n": True}, "n", "invalid_type"),
        ({"presence_penalty": 3}, "presence_penalty", "invalid_value"),
        ({"seed": 2**63}, "seed", "invalid_value"),
        ({"stop": [""]}, "stop", "invalid_value"),
        ({"stop": ["x"] * 17}, "stop", "invalid_value"),
        ({"stop": ["x" * 513]}, "stop", "invalid_value"),
        ({"stop": [1]}, "stop[0]", "invalid_type"),
        ({"stop_token_ids": [260]}, "stop_token_ids", "token_out_of_range"),
        ({"min_tokens": 17}, "min_tokens", "invalid_value"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "invalid_value"),
        ({"logit_bias": {"260": 1}}, "logit_bias", "token_out_of_range"),
        ({"logit_bias": {str(i): 0 for i in range(1025)}}, "logit_bias", "invalid_value"),
        ({"logit_bias": {"1": "a"}}, "logit_bias[1]", "invalid_type"),
        ({"logprobs": 21}, "logprobs", "invalid_value"),
        ({"logprobs": True}, "logprobs", "invalid_type"),
        ({"prompt_logprobs": -1}, "prompt_logprobs", "invalid_value"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs", "invalid_value"),
        ({"stream": "yes"}, "stream", "invalid_type"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
        ({"stream": True, "stream_options": {"colour": 1}}, "stream_options.colour", "unknown_field"),
        ({"n": 3, "best_of": 2}, "best_of", "invalid_value"),
        ({"suffix": "end"}, "suffix", "unsupported_field"),
        ({"guided_json": {"not": {"pattern": "a"}}}, "guided_json", "unsupported_schema"),
        ({"use_beam_search": "yes"}, "use_beam_search", "invalid_type"),
        ({"priority": 1}, "priority", "invalid_value"),
        ({"cache_salt": "x" * 257}, "cache_salt", "invalid_value"),
        ({"temprature": 1}, "temprature", "unknown_field"),
        ({"x" * 500: 1}, "x" * 64 + "...", "unknown_field"),
    ],
)
def test_bad_fields_are_named(http: httpx.Client, change: dict[str, Any], param: str, code: str) -> None:
    assert_error(http.post("/v1/completions", json={"prompt": "x", **change}), 400, code, param)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_tokens": -5}, "max_tokens is -5; it must be at least 1, or 0 with echo to get the prompt back"),
        ({"max_tokens": 10**20}, f"max_tokens is {10**20}; it must be at most 2147483647"),
        ({"max_tokens": 2.5}, "max_tokens is 2.5; it must be a whole number"),
        ({"min_tokens": -1}, "min_tokens is -1; it must be at least 0"),
        ({"top_k": 10**15}, f"top_k is {10**15}; it must be at most 2147483647"),
        ({"seed": -(2**70)}, f"seed is {-(2**70)}; it must be at least {-(2**63)}"),
        ({"logprobs": 21}, "logprobs is 21; it must be at most 20"),
        ({"logprobs": True}, "logprobs is true; it must be a whole number"),
        ({"temperature": "hot"}, "temperature is 'hot'; it must be a number"),
        ({"temperature": "h" * 900}, f"temperature is '{'h' * 99}...; it must be a number"),
        ({"timeout": 0}, "timeout is 0; it must be above 0"),
        ({"stream": "yes"}, "stream is 'yes'; it must be true or false"),
        ({"stop": [1]}, "stop[0] is 1; it must be a string"),
        ({"bad_words": "x"}, "bad_words is 'x'; it must be a list"),
        ({"stream_options": [1]}, "stream_options is a list; it must be an object"),
        ({"n": {"a": 1}}, "n is an object; it must be a whole number"),
    ],
)
def test_a_message_says_the_value_and_the_limit(http: httpx.Client, change: dict[str, Any], message: str) -> None:
    assert http.post("/v1/completions", json={"prompt": "x", **change}).json()["error"]["message"] == message


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("value", [0, -1, -(2**31)])
def test_an_answer_of_no_token_is_refused_in_one_way(http: httpx.Client, field: str, value: int) -> None:
    refused = http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}], field: value})
    assert_error(refused, 400, "invalid_value", field)
    assert refused.json()["error"]["message"] == f"{field} is {value}; it must be at least 1"


def test_near_field_name_is_suggested(http: httpx.Client) -> None:
    assert "did you mean 'temperature'" in http.post("/v1/completions", json={"prompt": "x", "temprature": 1}).text


def test_missing_prompt_is_named(http: httpx.Client) -> None:
    assert_error(http.post("/v1/completions", json={}), 400, "missing_field", "prompt")


@pytest.mark.parametrize("path", PATHS)
def test_other_content_types_are_refused(http: httpx.Client, path: str) -> None:
    assert_error(http.post(path, data={"prompt": "x"}), 415, "unsupported_media_type")


def test_unknown_model_is_404(http: httpx.Client) -> None:
    body = {"model": "gpt-5", "prompt": "x"}
    assert_error(http.post("/v1/completions", json=body), 404, "model_not_found", "model")
    assert_error(http.get("/v1/models/gpt-5"), 404, "model_not_found", "model")


def test_unknown_routes_and_methods_have_the_same_shape(http: httpx.Client) -> None:
    assert_error(http.get("/v2/nothing"), 404, "route_not_found")
    refused = http.get("/v1/completions")
    assert_error(refused, 405, "method_not_allowed")
    assert refused.headers["allow"] == "POST"
    assert_error(http.delete("/health"), 405, "method_not_allowed")


def test_declared_body_over_the_limit_is_413_and_the_connection_lives_on(http: httpx.Client) -> None:
    body = {"prompt": "x" * MAX_BODY_SIZE}
    assert_error(http.post("/v1/completions", json=body), 413, "body_too_large")
    assert http.post("/v1/completions", json={"prompt": "x"}).status_code == 200


def test_counted_body_over_the_limit_is_413(http: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 4096

    assert_error(http.post("/v1/completions", content=chunks(), headers=JSON), 413, "body_too_large")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (OverloadedError("full", retry_after_s=2.5), 429, "overloaded"),
        (EngineDeadError("gone"), 503, "engine_unavailable"),
        (ContextLengthError("long", param="prompt"), 400, "context_length_exceeded"),
    ],
)
def test_errors_before_the_first_token_keep_their_status(
    server: LiveServer, error: Any, status: int, code: str, stream: bool
) -> None:
    server.engine.fail_first = error
    answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": "x", "stream": stream})
    assert_error(answer, status, code, error.param)
    if status == 429:
        assert answer.headers["retry-after"] == "3"
    if status == 503:
        assert answer.headers["retry-after"] == "1"


def test_failure_inside_the_engine_is_a_500_that_tells_nothing(server: LiveServer) -> None:
    server.engine.fail_after_tokens = 2
    answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": "x"})
    assert_error(answer, 500, "internal_error")
    assert "fake engine broke" not in answer.text


def test_failed_request_gives_the_engines_reason(server: LiveServer) -> None:
    server.engine.finish_with = "error"
    assert_error(httpx.post(f"{server.url}/v1/completions", json={"prompt": "x"}), 500, "request_failed")


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
FIELDS = st.sampled_from(
    [
        *("model", "prompt", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "n"),
        *("stream", "stream_options", "stop", "logit_bias", "logprobs", "top_logprobs", "seed", "echo", "tools", "tool_choice"),
        *("stop_token_ids", "prompt_logprobs", "chat_template_kwargs", "continue_final_message", "response_format", "tokens"),
        *("cache_salt", "priority", "min_tokens", "ignore_eos", "add_generation_prompt", "repetition_penalty", "suffix"),
        *("truncate_prompt_tokens", "truncation_side", "best_of", "use_beam_search", "length_penalty", "return_token_ids"),
        *("chat_template", "documents", "add_special_tokens", "return_tokens_as_token_ids"),
        *("structured_outputs", "guided_json", "guided_choice", "guided_regex", "guided_grammar"),
    ]
)
MESSAGES = st.lists(st.dictionaries(st.sampled_from(["role", "content", "name", "tool_calls"]), VALUES, max_size=4), max_size=3)
BASES = st.sampled_from([{}, {"prompt": "x"}, {"messages": [{"role": "user", "content": "x"}]}, {"tokens": [1]}])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(PATHS), base=BASES, extra=st.dictionaries(FIELDS, VALUES | MESSAGES, max_size=4))
def test_no_body_makes_a_500(shared: LiveServer, path: str, base: dict[str, Any], extra: dict[str, Any]) -> None:
    try:
        raw = msgspec.json.encode({**base, **extra})
    except (OverflowError, UnicodeEncodeError):
        return
    answer = httpx.post(shared.url + path, content=raw, headers=JSON)
    assert answer.status_code in (200, 400, 404), answer.text
    if answer.status_code != 200:
        assert sorted(answer.json()["error"]) == ["code", "message", "param", "type"]


@settings(max_examples=60, deadline=None)
@given(path=st.sampled_from(PATHS), raw=st.binary(max_size=200))
def test_no_bytes_make_a_500(shared: LiveServer, path: str, raw: bytes) -> None:
    assert httpx.post(shared.url + path, content=raw, headers=JSON).status_code == 400


def test_model_name_may_be_left_out(http: httpx.Client) -> None:
    assert http.post("/v1/completions", json={"prompt": "x"}).json()["model"] == MODEL


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize"])
def test_a_giant_prompt_is_refused_by_its_length(path: str) -> None:
    with live_server(ServerConfig(max_body_size=2**24)) as live:
        answer = httpx.post(live.url + path, json={"prompt": "a" * 8_000_000})
        assert_error(answer, 400, "context_length_exceeded", "prompt")
        chat = {"messages": [{"role": "user", "content": "<" * 8_000_000}]}
        assert_error(httpx.post(f"{live.url}/v1/chat/completions", json=chat), 400, "context_length_exceeded", "messages")
        assert_error(httpx.post(f"{live.url}/detokenize", json={"tokens": [1] * 65537}), 400, "invalid_value", "tokens")


@pytest.mark.parametrize(
    ("tokens", "code"),
    [
        (None, "invalid_type"),
        ({}, "invalid_type"),
        ([1, "a"], "invalid_type"),
        ([-1], "token_out_of_range"),
        ([260], "token_out_of_range"),
    ],
)
def test_bad_token_lists_are_named(http: httpx.Client, tokens: Any, code: str) -> None:
    assert_error(http.post("/detokenize", json={"tokens": tokens}), 400, code, "tokens")


@pytest.mark.parametrize("path", PATHS)
def test_compressed_bodies_are_refused(http: httpx.Client, path: str) -> None:
    headers = {**JSON, "content-encoding": "gzip"}
    assert_error(http.post(path, content=gzip.compress(b'{"prompt": "x"}'), headers=headers), 415, "unsupported_media_type")


def test_a_long_path_is_not_repeated_in_full(http: httpx.Client) -> None:
    assert len(http.get("/" + "a" * 50_000).text) < 500


def test_tools_that_are_no_list_are_refused(http: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "tools": {"a": 1}, "tool_choice": "none"}
    assert_error(http.post("/v1/chat/completions", json=body), 400, "invalid_type", "tools")
