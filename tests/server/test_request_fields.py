"""The fields of vLLM's servers beyond OpenAI's: how prompts are cut and rendered, and what an answer shows of its tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest
from tests.fakes_server import ANSWER
from tests.server.conftest import MODEL, LiveServer, live_server

from octavo.config.server import ServerConfig
from octavo.engine.frontend.beam_search import BeamSearchParams
from octavo.text.tokenizer import Tokenizer

USER = {"role": "user", "content": "Hello you"}
STARTED = {"role": "assistant", "content": [{"type": "text", "text": "So"}, {"type": "text", "text": "far"}]}
CHAT = "/v1/chat/completions"
OWN_TEMPLATE = "{% for m in messages %}({{ m.content }}){% endfor %}{% for d in documents or [] %}[{{ d.title }}]{% endfor %}"
FLAGS = ServerConfig(
    trust_request_chat_template=True,
    return_tokens_as_token_ids=True,
    enable_force_include_usage=True,
    response_role="model",
    chat_template_content_format="openai",
    default_chat_template_kwargs='{"close": "<>", "shown": "by default"}',
    disable_fastapi_docs=True,
)


@pytest.fixture(scope="module")
def plain() -> Iterator[LiveServer]:
    with live_server(ServerConfig()) as live:
        yield live


@pytest.fixture(scope="module")
def flagged() -> Iterator[LiveServer]:
    with live_server(FLAGS) as live:
        yield live


@pytest.fixture
def sdk(plain: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{plain.url}/v1", api_key="none", max_retries=0, timeout=15) as made:
        yield made


def post(server: LiveServer, path: str, **body: Any) -> dict[str, Any]:
    answer = httpx.post(server.url + path, json=body, timeout=15)
    assert answer.status_code == 200, answer.text
    parsed: dict[str, Any] = answer.json()
    return parsed


def refused(server: LiveServer, path: str, **body: Any) -> dict[str, Any]:
    answer = httpx.post(server.url + path, json=body, timeout=15)
    assert answer.status_code == 400, answer.text
    error: dict[str, Any] = answer.json()["error"]
    return error


def last_prompt(server: LiveServer) -> str:
    return bytes_of(server, server.engine.requests[-1][0])


def bytes_of(server: LiveServer, token_ids: list[int]) -> str:
    return server.engine.tokenizer.decode(token_ids, skip_special_tokens=False)


@pytest.mark.parametrize(
    ("change", "prompt"),
    [
        ({"truncate_prompt_tokens": 4}, "6789"),
        ({"truncate_prompt_tokens": 4, "truncation_side": "left"}, "6789"),
        ({"truncate_prompt_tokens": 4, "truncation_side": "right"}, "0123"),
        ({"truncate_prompt_tokens": 10}, "0123456789"),
        ({"truncate_prompt_tokens": 512, "truncation_side": "right"}, "0123456789"),
        ({"truncate_prompt_tokens": None}, "0123456789"),
    ],
)
def test_a_prompt_is_cut_where_that_is_asked_for(plain: LiveServer, change: dict[str, Any], prompt: str) -> None:
    usage = post(plain, "/v1/completions", prompt="0123456789", max_tokens=1, **change)["usage"]
    assert last_prompt(plain) == prompt and usage["prompt_tokens"] == len(prompt)
    token_ids = post(plain, "/tokenize", prompt="0123456789")["tokens"]
    post(plain, "/v1/completions", prompt=token_ids, max_tokens=1, **change)
    assert last_prompt(plain) == prompt
    assert post(plain, "/tokenize", prompt="0123456789", **change)["count"] == len(prompt)


def test_a_prompt_of_megabytes_is_refused_also_where_it_is_to_be_cut(plain: LiveServer) -> None:
    long = "x" * 1_200_000
    for path, body in (("/v1/completions", {"prompt": long}), (CHAT, {"messages": [{**USER, "content": long}]})):
        error = refused(plain, path, **body, truncate_prompt_tokens=4)
        assert error["code"] == "context_length_exceeded" and "clearly more than 65536 tokens" in error["message"]


@pytest.mark.parametrize(("max_tokens", "kept"), [(None, 511), (1, 511), (100, 412), (5000, 1)])
def test_minus_one_keeps_what_the_context_leaves(plain: LiveServer, max_tokens: int | None, kept: int) -> None:
    text = "".join(chr(97 + i % 26) for i in range(2000))
    post(plain, "/v1/completions", prompt=text, max_tokens=max_tokens, truncate_prompt_tokens=-1)
    assert last_prompt(plain) == text[-kept:]


def test_a_chat_is_cut_in_its_rendered_form(plain: LiveServer) -> None:
    whole = bytes_of(plain, post(plain, "/tokenize", messages=[USER])["tokens"])
    post(plain, CHAT, messages=[USER], max_tokens=1, truncate_prompt_tokens=12)
    assert len(plain.engine.requests[-1][0]) == 12 and whole.endswith(last_prompt(plain))
    post(plain, CHAT, messages=[{"role": "user", "content": "x" * 3000}], max_tokens=1, truncate_prompt_tokens=-1)
    assert len(plain.engine.requests[-1][0]) == 511
    assert refused(plain, CHAT, messages=[{"role": "user", "content": "x" * 3000}])["code"] == "context_length_exceeded"


def test_documents_and_special_tokens_reach_the_prompt(plain: LiveServer) -> None:
    post(plain, CHAT, messages=[USER], max_tokens=1, documents=[{"title": "a", "text": "b"}], add_special_tokens=True)
    assert last_prompt(plain).startswith("<|im_start|>user")  # this tokenizer wants no BOS, and its template shows no documents
    assert refused(plain, CHAT, messages=[USER], documents=["a"])["param"] == "documents[0]"
    assert refused(plain, CHAT, messages=[USER], documents=[{}] * 4097)["param"] == "documents"


def test_a_template_of_the_requests_own_needs_the_flag(plain: LiveServer, flagged: LiveServer) -> None:
    body = {"messages": [USER], "chat_template": OWN_TEMPLATE}
    for path in (CHAT, "/tokenize"):
        error = refused(plain, path, **body)
        assert error["param"] == "chat_template" and "--trust-request-chat-template" in error["message"]
    error = refused(flagged, CHAT, messages=[USER], chat_template_kwargs={"chat_template": OWN_TEMPLATE})
    assert error["param"] == "chat_template_kwargs"
    post(flagged, CHAT, max_tokens=1, documents=[{"title": "T"}], add_generation_prompt=False, **body)
    assert "Hello you" in last_prompt(flagged) and last_prompt(flagged).endswith("[T]")
    assert bytes_of(flagged, post(flagged, "/tokenize", **body)["tokens"]) == last_prompt(flagged).removesuffix("[T]")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% for", "is not valid Jinja"),
        ("{{ messages[0].content.nothing.more }}", "failed at"),
        ("{{ raise_exception('not so') }}", "not so"),
        ("x" * 70_000, "has 70000 characters; it must be a Jinja template of at most 65536"),
        ("{{ 'a' * 10000000 }}", "repeats"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% for a in range(99999) %}{{ 'x' * 999 }}{% endfor %}", "exceeds"),
    ],
)
def test_a_bad_template_ends_its_own_request_alone(flagged: LiveServer, template: str, said: str) -> None:
    error = refused(flagged, CHAT, messages=[USER], chat_template=template)
    assert said in error["message"] and error["param"] in ("chat_template", "messages") and len(error["message"]) < 900
    post(flagged, CHAT, messages=[USER], max_tokens=1)


@pytest.mark.parametrize("role", ["assistant", "user"])
def test_echo_in_a_chat_repeats_what_is_continued(plain: LiveServer, role: str) -> None:
    last = {**STARTED, "role": role}
    body = {"messages": [USER, last], "echo": True, "max_tokens": 300, "n": 2}
    body |= {"continue_final_message": True} if role == "assistant" else {}
    echoed = "So\nfar" if role == "assistant" else ""
    whole = post(plain, CHAT, **body)
    assert [choice["message"]["content"] for choice in whole["choices"]] == [echoed + ANSWER] * 2
    assert {choice["message"]["role"] for choice in whole["choices"]} == {"assistant"}
    with openai.OpenAI(base_url=f"{plain.url}/v1", api_key="none") as sdk:
        extra = {key: body.pop(key) for key in ("echo", "continue_final_message") if key in body}
        chunks = list(sdk.chat.completions.create(model=MODEL, stream=True, extra_body=extra, **body))  # type: ignore[call-overload]
    for index in range(2):
        deltas = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices if choice.index == index]
        assert "".join(deltas) == echoed + ANSWER


@pytest.mark.parametrize("options", [{}, {"stop": "emoji"}, {"echo": True}, {"echo": True, "max_tokens": 0}, {"n": 2}])
def test_token_ids_of_a_completion_are_the_same_streamed_and_whole(sdk: openai.OpenAI, options: dict[str, Any]) -> None:
    body: dict[str, Any] = {"model": MODEL, "prompt": [[1, 2], [3, 4]], "max_tokens": 60, **options}
    whole = sdk.completions.create(**body, extra_body={"return_token_ids": True})
    chunks = list(sdk.completions.create(**body, stream=True, extra_body={"return_token_ids": True}))
    for expected in whole.choices:
        extra = expected.model_extra or {}
        own = [choice for chunk in chunks for choice in chunk.choices if choice.index == expected.index]
        ids = [(choice.model_extra or {})["token_ids"] for choice in own]
        assert [token for delta in ids for token in delta] == extra["token_ids"]
        assert bool(extra["token_ids"]) == (body["max_tokens"] > 0)
        prompts = [(choice.model_extra or {}).get("prompt_token_ids") for choice in own]
        assert prompts == [extra["prompt_token_ids"]] + [None] * (len(own) - 1)
    assert [(choice.model_extra or {})["prompt_token_ids"] for choice in whole.choices][-1] == [3, 4]


def test_token_ids_of_a_chat_are_the_same_streamed_and_whole(plain: LiveServer, sdk: openai.OpenAI) -> None:
    options: dict[str, Any] = {"model": MODEL, "messages": [USER], "max_tokens": 40, "n": 2}
    whole = sdk.chat.completions.create(**options, extra_body={"return_token_ids": True})
    chunks = list(sdk.chat.completions.create(**options, stream=True, extra_body={"return_token_ids": True}))
    prompt = (whole.model_extra or {})["prompt_token_ids"]
    assert prompt == plain.engine.requests[-1][0]
    shown = [(chunk.model_extra or {}).get("prompt_token_ids") for chunk in chunks]
    assert shown == [prompt] + [None] * (len(chunks) - 1)
    for expected in whole.choices:
        own = [choice for chunk in chunks for choice in chunk.choices if choice.index == expected.index]
        ids = [(choice.model_extra or {}).get("token_ids", []) for choice in own]
        assert [token for delta in ids for token in delta] == (expected.model_extra or {})["token_ids"] != []
    assert "token_ids" not in post(plain, CHAT, messages=[USER], max_tokens=1)["choices"][0]


def test_tokens_as_ids_in_logprobs(plain: LiveServer, flagged: LiveServer) -> None:
    body = {"prompt": "ab", "max_tokens": 4, "logprobs": 2, "echo": True}
    texts = post(plain, "/v1/completions", **body)["choices"][0]["logprobs"]
    asked = post(plain, "/v1/completions", return_tokens_as_token_ids=True, return_token_ids=True, **body)["choices"][0]
    logprobs, ids = asked["logprobs"], asked["prompt_token_ids"] + asked["token_ids"]
    assert logprobs["tokens"] == [f"token_id:{token_id}" for token_id in ids]
    assert all(key.startswith("token_id:") for top in logprobs["top_logprobs"] if top for key in top)
    assert logprobs["text_offset"] == texts["text_offset"] and logprobs["token_logprobs"] == texts["token_logprobs"]
    assert post(flagged, "/v1/completions", **body)["choices"][0]["logprobs"] == logprobs
    no = post(flagged, "/v1/completions", return_tokens_as_token_ids=False, **body)["choices"][0]["logprobs"]
    assert no == texts
    chat = {"messages": [USER], "max_tokens": 2, "logprobs": True, "top_logprobs": 1}
    (first, _) = post(flagged, CHAT, **chat)["choices"][0]["logprobs"]["content"]
    assert first["token"] == first["top_logprobs"][0]["token"] == "token_id:38" and first["bytes"] == [ord("G")]


def test_variables_of_the_server_yield_to_those_of_the_request(flagged: LiveServer) -> None:
    template = "{{ close }}{{ shown }}{{ messages|length }}"
    for own, text in ((None, "<>by default1"), ({"shown": "anew"}, "<>anew1")):
        tokens = post(flagged, "/tokenize", messages=[USER], chat_template=template, chat_template_kwargs=own)["tokens"]
        assert bytes_of(flagged, tokens) == text


def test_a_model_that_fills_in_the_middle_gets_prefix_and_suffix(flagged: LiveServer) -> None:
    plain = flagged.engine.tokenizer
    body = {"prompt": ["def f(", [1, 2]], "suffix": "): pass", "max_tokens": 3}
    assert refused(flagged, "/v1/completions", **{**body, "prompt": "def f("})["param"] == "suffix"
    fim = Tokenizer(plain._backend, replace(plain.spec, fim_token_ids=(256, 257, 258), prefix_ids=(256,)))
    flagged.engine.tokenizer = fim
    try:
        for prompt, before in (("def f(", "def f("), (plain.encode("ab"), "ab")):
            answer = post(flagged, "/v1/completions", **{**body, "prompt": prompt})
            assert last_prompt(flagged) == f"<|bos|><|bos|>{before}<|im_start|>): pass<|im_end|>"
            assert answer["usage"]["prompt_tokens"] == len(flagged.engine.requests[-1][0])
        post(flagged, "/v1/completions", **{**body, "prompt": "x", "add_special_tokens": False})
        assert last_prompt(flagged) == "<|bos|>x<|im_start|>): pass<|im_end|>"
        assert refused(flagged, "/v1/completions", prompt="x", suffix="y" * 600)["code"] == "context_length_exceeded"
        assert refused(flagged, "/v1/completions", prompt="x", suffix="y", truncate_prompt_tokens=4)["code"] == "invalid_value"
    finally:
        flagged.engine.tokenizer = plain


def test_flags_of_the_server_reach_every_chat(flagged: LiveServer) -> None:
    answer = post(flagged, CHAT, messages=[USER], max_tokens=2)
    assert answer["choices"][0]["message"]["role"] == "model"
    assert "'text': 'Hello you'" in last_prompt(flagged)  # this template shows a list of parts as it is
    for path, body in ((CHAT, {"messages": [USER]}), ("/v1/completions", {"prompt": "a"})):
        lines = httpx.post(flagged.url + path, json={**body, "max_tokens": 2, "stream": True}, timeout=15).text.split("\n\n")
        assert '"choices":[],"usage":{"prompt_tokens":' in lines[-3] and lines[-2] == "data: [DONE]"
    assert httpx.get(f"{flagged.url}/openapi.json").status_code == 404 and httpx.get(f"{flagged.url}/docs").status_code == 404


def test_the_best_of_several_answers_are_chosen_by_their_mean_logprob(plain: LiveServer) -> None:
    body = {"prompt": "ab", "max_tokens": 5, "n": 2, "best_of": 5}
    answer = post(plain, "/v1/completions", **body)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1] and answer["choices"][0]["logprobs"] is None
    assert answer["usage"]["completion_tokens"] == 25  # what was made counts
    params = plain.engine.requests[-1][1]
    assert (params.n, params.logprobs) == (5, 0)
    assert refused(plain, CHAT, messages=[USER], best_of=2)["param"] == "best_of"
    post(plain, CHAT, messages=[USER], best_of=1, max_tokens=1)


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
def test_a_beam_search_is_made_of_one_token_requests(plain: LiveServer, path: str) -> None:
    prompt: dict[str, Any] = {"messages": [USER]} if path == CHAT else {"prompt": "ab"}
    before = len(plain.engine.requests)
    answer = post(plain, path, **prompt, use_beam_search=True, n=3, max_tokens=4, temperature=0, return_token_ids=True)
    made = plain.engine.requests[before:]
    assert {params.logprobs for _, params, *_ in made} == {6} and {params.max_tokens for _, params, *_ in made} == {1}
    assert len(made) == 1 + 3 * 3
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert answer["usage"]["completion_tokens"] == sum(len(choice["token_ids"]) for choice in answer["choices"]) == 12
    prompt_ids = made[0][0]
    assert answer["usage"]["prompt_tokens"] == len(prompt_ids)
    assert all(ids[: len(prompt_ids)] == prompt_ids for ids, *_ in made)
    assert all(choice["finish_reason"] == "length" for choice in answer["choices"])


def test_a_beam_search_calls_no_tools(plain: LiveServer) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    body = {"messages": [USER], "tools": [tool], "use_beam_search": True, "max_tokens": 2}
    for choice in ("required", {"type": "function", "function": {"name": "f"}}):
        assert refused(plain, CHAT, **body, tool_choice=choice)["param"] == "tool_choice"
    post(plain, CHAT, **body, tool_choice="none")


def test_echo_and_prompt_logprobs_each_show_as_many_as_they_ask_for(plain: LiveServer) -> None:
    body = {"prompt": "abc", "max_tokens": 1, "echo": True}
    for asked, shown in ((3, 1), (1, 3)):
        choice = post(plain, "/v1/completions", **body, logprobs=asked, prompt_logprobs=shown)["choices"][0]
        assert {len(top) for top in choice["logprobs"]["top_logprobs"][1:]} == {asked}
        assert {len(entry) for entry in choice["prompt_logprobs"][1:]} == {shown}


def test_a_beam_search_has_the_logprobs_of_its_own_tokens(plain: LiveServer) -> None:
    body = {"prompt": "ab", "use_beam_search": True, "n": 2, "max_tokens": 3, "logprobs": 2, "return_token_ids": True}
    for choice in post(plain, "/v1/completions", **body)["choices"]:
        assert len(choice["logprobs"]["tokens"]) == len(choice["token_ids"]) == 3
        assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
    chat = post(plain, CHAT, messages=[USER], use_beam_search=True, n=2, max_tokens=3, logprobs=True, top_logprobs=2)
    assert all(len(choice["logprobs"]["content"]) == 3 for choice in chat["choices"])


def test_the_widest_beams_of_the_page_are_those_of_the_code() -> None:
    assert BeamSearchParams(beam_width=10, max_tokens=1).sampling.logprobs == 20


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"best_of": 65}, "best_of", "invalid_value"),
        ({"best_of": 0}, "best_of", "invalid_value"),
        ({"best_of": 2, "stream": True}, "best_of", "invalid_value"),
        ({"best_of": 2, "use_beam_search": True}, "best_of", "invalid_value"),
        ({"use_beam_search": True, "n": 11}, "n", "invalid_value"),
        ({"use_beam_search": True, "n": 0}, "n", "invalid_value"),
        ({"use_beam_search": True, "stream": True}, "stream", "invalid_value"),
        ({"use_beam_search": True, "top_p": 0.5}, "top_p", "unsupported_field"),
        ({"use_beam_search": True, "stop": ["a"]}, "stop", "unsupported_field"),
        ({"use_beam_search": True, "guided_choice": ["a"]}, "guided_choice", "unsupported_field"),
        ({"use_beam_search": True, "logprobs": 5}, "logprobs", "invalid_value"),
        ({"use_beam_search": True, "length_penalty": 11}, "length_penalty", "invalid_value"),
        ({"use_beam_search": True, "temperature": -1}, "temperature", "invalid_value"),
        ({"use_beam_search": True, "echo": True, "logprobs": 1}, "echo", "invalid_value"),
        ({"length_penalty": 1.5}, "length_penalty", "invalid_value"),
        ({"early_stopping": True}, "early_stopping", "unsupported_field"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "invalid_value"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens", "invalid_value"),
        ({"truncate_prompt_tokens": 513}, "truncate_prompt_tokens", "invalid_value"),
        ({"truncate_prompt_tokens": "4"}, "truncate_prompt_tokens", "invalid_type"),
        ({"truncate_prompt_tokens": 4, "truncation_side": "middle"}, "truncation_side", "invalid_value"),
        ({"truncation_side": "left"}, "truncation_side", "invalid_value"),
        ({"suffix": 1}, "suffix", "invalid_type"),
        ({"suffix": "a", "echo": True}, "echo", "invalid_value"),
        ({"return_token_ids": "yes"}, "return_token_ids", "invalid_type"),
        ({"return_tokens_as_token_ids": 1}, "return_tokens_as_token_ids", "invalid_type"),
        ({"prompt_embeds": "AAAA"}, "prompt_embeds", "unsupported_field"),
        ({"logits_processors": ["a"]}, "logits_processors", "unsupported_field"),
    ],
)
def test_bad_values_of_these_fields_are_named(plain: LiveServer, change: dict[str, Any], param: str, code: str) -> None:
    error = refused(plain, "/v1/completions", **{"prompt": "x", **change})
    assert (error["param"], error["code"]) == (param, code) and error["message"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"truncation_side": "up"}, "truncation_side is 'up'; it must be 'left' or 'right'"),
        ({"truncate_prompt_tokens": 900}, "truncate_prompt_tokens is 900; it must be 1 to 512, the length of the context"),
        ({"best_of": 70}, "best_of is 70; it must be at least n, which is 1, and at most 64"),
        ({"use_beam_search": True, "n": 30}, "n is 30; with use_beam_search it is the number of beams, 1 to 10"),
        ({"length_penalty": 2}, "length_penalty is 2; it needs use_beam_search: true"),
        ({"prompt_embeds": "AA"}, "prompt_embeds is not supported by this server; send the prompt as text or token ids"),
    ],
)
def test_refusals_give_value_limit_and_way_out(plain: LiveServer, change: dict[str, Any], message: str) -> None:
    assert refused(plain, "/v1/completions", prompt="x", **change)["message"].startswith(message)
