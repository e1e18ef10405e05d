"""InputProcessor: every refusal names its field, everything left open is resolved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.fakes import EOS, VOCAB_SIZE, byte_tokenizer, ids
from tests.unit.engine.rig import MODEL

from octavo.engine.frontend.input import InputProcessor
from octavo.engine.frontend.prompt import Prompt
from octavo.errors import ContextLengthError, InvalidRequestError
from octavo.request import RequestOptions
from octavo.sampling_params import SamplingParams


def processor(**options: Any) -> InputProcessor:
    return InputProcessor(byte_tokenizer(), MODEL, 128, random_seed=lambda: 42, **options)


def prepare(prompt: Prompt, sampling: SamplingParams | None = None, **fields: Any) -> Any:
    return processor().prepare(
        prompt, sampling or SamplingParams(), fields.pop("request_id", "r"), RequestOptions(**fields), arrival_s=0.0
    )


def test_text_and_ids_and_dicts_are_prompts() -> None:
    assert prepare("hi").request.prompt_token_ids == ids("hi") and prepare("hi").prompt == "hi"
    assert prepare([1, 2]).request.prompt_token_ids == [1, 2] and prepare([1, 2]).prompt is None
    assert prepare({"prompt_token_ids": (1, 2)}).request.prompt_token_ids == [1, 2]
    assert prepare({"prompt": "hi"}).prompt == "hi"


@pytest.mark.parametrize(
    "prompt", ["", [], [1.5], [True], ["a"], b"x", None, 3, {}, [VOCAB_SIZE], [-1], {"prompt": {"prompt": "x"}}]
)
def test_bad_prompts_are_refused(prompt: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        prepare(prompt)
    assert caught.value.param == "prompt" and caught.value.status == 400


def test_a_text_with_a_token_beyond_the_models_vocabulary_is_refused() -> None:
    known = replace(MODEL, vocab_size=ids("b")[0] + 1)
    small = InputProcessor(byte_tokenizer(), known, 128)
    prompts: list[Prompt] = ["abc", {"prompt": "abc"}, ids("abc"), {"prompt_token_ids": ids("abc")}]
    for prompt in prompts:
        with pytest.raises(InvalidRequestError, match=f"holds token id {ids('c')[0]}; the model has ids 0 to") as caught:
            small.prepare(prompt, SamplingParams(), "r", arrival_s=0.0)
        assert (caught.value.param, caught.value.code) == ("prompt", "token_out_of_range")
    assert small.prepare("ab", SamplingParams(), "r", arrival_s=0.0).request.prompt_token_ids == ids("ab")


def test_open_values_are_resolved() -> None:
    request = prepare("hello", SamplingParams(max_tokens=None, stop_token_ids=[7])).request
    assert (request.max_tokens, request.seed, request.stop_token_ids) == (128 - 5, 42, [7, EOS])
    assert prepare("hello", SamplingParams(seed=3, ignore_eos=True)).request.seed == 3
    assert prepare("hello", SamplingParams(ignore_eos=True)).request.stop_token_ids == []
    assert prepare("hello", SamplingParams(top_k=2**80)).request.sampling.top_k == 0


def test_a_prompt_without_room_for_an_answer_is_refused() -> None:
    with pytest.raises(ContextLengthError, match="128 tokens.*context of 128 tokens") as caught:
        prepare("x" * 128)
    assert (caught.value.param, caught.value.code) == ("prompt", "context_length_exceeded")
    assert prepare("x" * 127, SamplingParams(max_tokens=1)).request.max_tokens == 1


def test_max_tokens_that_cannot_fit_is_refused_with_the_way_out() -> None:
    with pytest.raises(ContextLengthError, match="lower max_tokens to 28") as caught:
        prepare("x" * 100, SamplingParams(max_tokens=29))
    assert caught.value.param == "max_tokens"


def test_min_tokens_beyond_the_context_is_refused() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        prepare("x" * 100, SamplingParams(max_tokens=None, min_tokens=29))
    assert caught.value.param == "min_tokens"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", "hot"),
        ("temperature", float("nan")),
        ("top_k", 1.5),
        ("n", 0),
        ("stop", [1]),
        ("stop_token_ids", [VOCAB_SIZE]),
        ("logit_bias", {VOCAB_SIZE: 1.0}),
        ("logit_bias", {"a": 1.0}),
        ("max_tokens", -1),
        ("seed", 2**64),
        ("logprobs", 21),
        ("temperature", object()),
    ],
)
def test_sampling_values_of_wrong_type_or_range_are_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        prepare("hi", SamplingParams(**{field: value}))
    assert caught.value.param in (field, None) and caught.value.message


def test_a_single_stop_string_is_taken_as_a_list() -> None:
    stop: Any = "text"
    assert prepare("hi", SamplingParams(stop=stop)).request.sampling.stop == ["text"]


def test_the_request_keeps_no_reference_to_the_callers_parameters() -> None:
    sampling = SamplingParams(stop=["a"])
    request = prepare("hi", sampling).request
    sampling.stop.append("b")
    assert request.sampling.stop == ["a"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"request_id": ""}, "request_id"),
        ({"request_id": "x" * 1000}, "request_id"),
        ({"cache_salt": "x" * 1000}, "cache_salt"),
        ({"priority": 2**40}, "priority"),
        ({"priority": 1}, "priority"),
    ],
)
def test_envelope_fields_are_checked(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        prepare("hi", **fields)
    assert caught.value.param == param


def test_priority_is_honoured_where_the_policy_reads_it() -> None:
    prepared = processor(scheduler_policy="priority").prepare(
        "hi", SamplingParams(), "r", RequestOptions(priority=-5), arrival_s=0.0
    )
    assert prepared.request.priority == -5
