"""Answers that are known beforehand, because a form leaves the model no choice: every field exact, streamed and whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.served import Served

FORCED = [
    "one, two, three, four, five",
    "안녕, 👩‍👧 🎉🎉 끝",
    "Grüß\n\n“日” e\u0301 🏳️‍🌈 <|im_end|> done",
]
STOPS = {
    FORCED[0]: [["four"], [", ", "two"], ["nowhere"]],
    FORCED[1]: [["👧"], ["🎉", "녕x"], ["끝"]],
    FORCED[2]: [["\n\n"], ["\u0301", "x"], ["<|im_end|>"]],
}


@pytest.fixture(scope="module")
def served(smollm2_gguf: Path) -> Iterator[Served]:
    flags = ("--kv-cache-memory", "0.125", "--max-model-len", "1024", "--trust-request-chat-template", "--log-level", "error")
    started = Served(smollm2_gguf, *flags)
    yield started
    assert started.stop() == (0, "")


@pytest.fixture(scope="module")
def sdk(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0, timeout=120) as made:
        yield made


def post(served: Served, path: str, **body: Any) -> dict[str, Any]:
    answer = httpx.post(served.url + path, json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    parsed: dict[str, Any] = answer.json()
    return parsed


def cut(text: str, stop: list[str], included: bool) -> tuple[str, str | None]:
    """The text before the stop string that is complete first, and that string."""
    ends = [(text.index(word) + len(word), text.index(word), word) for word in stop if word in text]
    if not ends:
        return text, None
    end, start, word = min(ends)
    return text[: end if included else start], word


@pytest.mark.parametrize("text", FORCED)
def test_forced_text_is_cut_at_stop_strings_streamed_and_whole(sdk: openai.OpenAI, text: str) -> None:
    for index, stop in enumerate(STOPS[text]):
        included = index % 2 == 1
        extra = {"structured_outputs": {"choice": [text]}, "include_stop_str_in_output": included, "return_token_ids": True}
        fields: dict[str, Any] = {
            "model": "m",
            "prompt": "Say it:",
            "max_tokens": 200,
            "seed": 1,
            "stop": stop,
            "extra_body": extra,
        }
        (whole,) = sdk.completions.create(**fields).choices
        expected, stopped_by = cut(text, stop, included)
        found = (whole.text, (whole.model_extra or {})["stop_reason"], whole.finish_reason)
        assert found == (expected, stopped_by, "stop")
        chunks = [choice for chunk in sdk.completions.create(**fields, stream=True) for choice in chunk.choices]
        assert "".join(choice.text for choice in chunks) == expected
        token_ids = [token for choice in chunks for token in (choice.model_extra or {})["token_ids"]]
        assert token_ids == (whole.model_extra or {})["token_ids"] and chunks[-1].finish_reason == "stop"


def test_stop_strings_wait_for_min_tokens(served: Served) -> None:
    text = "a stop b stop c stop"
    body = {"prompt": "Say it:", "structured_outputs": {"choice": [text]}, "max_tokens": 80, "seed": 1}
    pieces = post(served, "/v1/completions", **body, logprobs=0)["choices"][0]["logprobs"]["tokens"]
    starts = [at for at in range(len(text)) if text.startswith("stop", at)]
    # How many tokens there are when each of them is complete.
    counts = [next(n for n in range(len(pieces) + 1) if len("".join(pieces[:n])) >= at + 4) for at in starts]
    for min_tokens in (counts[0] - 1, counts[0], counts[1] - 1, counts[1], counts[2]):
        cuts = [text[:at] for at, count in zip(starts, counts, strict=True) if count > min_tokens]
        choice = post(served, "/v1/completions", **body, stop="stop", min_tokens=min_tokens)["choices"][0]
        assert choice["text"] == (cuts[0] if cuts else text)


def test_echo_logprobs_and_token_ids_speak_of_the_same_tokens(served: Served) -> None:
    prompt = "The capital of 한국 is"
    body = {"prompt": prompt, "max_tokens": 4, "temperature": 0, "echo": True, "logprobs": 1, "return_token_ids": True}
    choice = post(served, "/v1/completions", **body, return_tokens_as_token_ids=True)["choices"][0]
    ids = choice["prompt_token_ids"] + choice["token_ids"]
    assert choice["logprobs"]["tokens"] == [f"token_id:{token_id}" for token_id in ids]
    assert (
        choice["text"].startswith(prompt) and choice["prompt_token_ids"] == post(served, "/tokenize", prompt=prompt)["tokens"]
    )
    assert choice["logprobs"]["token_logprobs"][0] is None and len(choice["logprobs"]["text_offset"]) == len(ids)
    again = post(served, "/v1/completions", **{**body, "prompt": ids, "max_tokens": 0})["choices"][0]
    assert again["text"] == choice["text"] and again["finish_reason"] == "length"
    assert again["logprobs"]["token_logprobs"] == choice["logprobs"]["token_logprobs"]


def test_a_cut_prompt_is_the_prompt_of_its_last_tokens(served: Served) -> None:
    token_ids = post(served, "/tokenize", prompt="All of this is cut away. One, two, three, four,")["tokens"]
    body = {"max_tokens": 6, "temperature": 0, "return_token_ids": True}
    expected = post(served, "/v1/completions", prompt=token_ids[-8:], **body)["choices"]
    text = "All of this is cut away. One, two, three, four,"
    assert post(served, "/v1/completions", prompt=text, truncate_prompt_tokens=8, **body)["choices"] == expected


def test_the_best_of_four_is_the_likeliest_of_the_four(served: Served) -> None:
    body = {"prompt": "Once", "max_tokens": 8, "temperature": 1.5, "seed": 11, "logprobs": 0}
    four = post(served, "/v1/completions", **body, n=4)["choices"]
    means = [sum(values := choice["logprobs"]["token_logprobs"]) / len(values) for choice in four]
    best = sorted(range(4), key=lambda index: -means[index])[:2]
    chosen = post(served, "/v1/completions", **body, n=2, best_of=4)
    assert [choice["text"] for choice in chosen["choices"]] == [four[index]["text"] for index in best]
    assert chosen["usage"]["completion_tokens"] == sum(len(choice["logprobs"]["tokens"]) for choice in four)


def test_beams_repeat_and_are_at_least_as_likely_as_greedy(served: Served) -> None:
    body = {"prompt": "The sea is", "max_tokens": 6, "temperature": 0, "logprobs": 1, "ignore_eos": True}
    greedy = post(served, "/v1/completions", **body)["choices"][0]
    one, three, again = (post(served, "/v1/completions", **body, use_beam_search=True, n=n) for n in (1, 3, 3))
    assert one["choices"][0]["text"] == greedy["text"]
    assert one["choices"][0]["logprobs"]["token_logprobs"] == greedy["logprobs"]["token_logprobs"]
    assert three["choices"] == again["choices"]
    sums = [sum(choice["logprobs"]["token_logprobs"]) for choice in three["choices"]]
    assert sums == sorted(sums, reverse=True) and sums[0] >= sum(greedy["logprobs"]["token_logprobs"]) - 1e-6
    assert len({choice["text"] for choice in three["choices"]}) == 3
    messages = [{"role": "user", "content": "Hi"}]
    chat = post(served, "/v1/chat/completions", messages=messages, use_beam_search=True, n=2, max_tokens=8)
    assert len({choice["message"]["content"] for choice in chat["choices"]}) == 2


def test_a_template_of_the_request_and_a_started_answer(served: Served) -> None:
    messages = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "One, two,"}]
    template = "{% for m in messages %}{{ m.content }} {% endfor %}"
    body = {"messages": messages, "chat_template": template, "add_generation_prompt": False}
    assert post(served, "/detokenize", tokens=post(served, "/tokenize", **body)["tokens"])["prompt"] == "Count. One, two, "
    choices = {"structured_outputs": {"choice": [" three 셋 🎉"]}, "echo": True, "continue_final_message": True}
    answer = post(served, "/v1/chat/completions", messages=messages, max_tokens=30, **choices)["choices"][0]
    assert answer["message"] == {"role": "assistant", "content": "One, two, three 셋 🎉", "refusal": None}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"suffix": "end"}, "suffix"),
        ({"truncate_prompt_tokens": 1025}, "truncate_prompt_tokens"),
        ({"use_beam_search": True, "n": 11}, "n"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"prompt_embeds": [1]}, "prompt_embeds"),
    ],
)
def test_what_this_model_cannot_do_is_refused_by_name(served: Served, change: dict[str, Any], param: str) -> None:
    answer = httpx.post(f"{served.url}/v1/completions", json={"prompt": "x", **change}, timeout=60)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param
