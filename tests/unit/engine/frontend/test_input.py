"""InputProcessor: every refusal names its field, everything left open is resolved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.fakes import EOS, VOCAB_SIZE, byte_tokenizer, ids
from tests.unit.engine.rig import MODEL

from octavo.engine.frontend.input import InputProcessor, seeds
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
    with pytest.raises(ContextLengthError, match="maximum context length is 128 tokens.*128 tokens") as caught:
        prepare("x" * 128)
    assert (caught.value.param, caught.value.code) == ("prompt", "context_length_exceeded")
    assert prepare("x" * 127, SamplingParams(max_tokens=1)).request.max_tokens == 1


@pytest.mark.parametrize(
    ("num_prompt", "asked", "granted"), [(100, 29, 28), (100, 2**40, 28), (100, None, 28), (127, 5, 1), (9, 9, 9)]
)
def test_the_answer_is_as_long_as_asked_or_as_the_context_allows(num_prompt: int, asked: int | None, granted: int) -> None:
    for min_tokens in (0, asked or 50):
        request = prepare("x" * num_prompt, SamplingParams(max_tokens=asked, min_tokens=min_tokens)).request
        assert request.max_tokens == granted


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


def test_a_seed_fixes_the_seeds_of_requests_that_bring_none() -> None:
    first, again, other = seeds(5), seeds(5), seeds(6)
    drawn = [first() for _ in range(3)]
    assert drawn == [again() for _ in range(3)] and len(set(drawn)) == 3 and drawn[0] != other()
    assert all(0 <= seed < 2**63 for seed in drawn) and seeds(None)() != seeds(None)()


@pytest.mark.parametrize(("length", "is_long"), [(1, False), (64, False), (65, True), (100, True)])
@pytest.mark.parametrize("salt", ["", "mine"])
def test_prompts_with_the_long_factors_of_longrope_share_no_cache_with_short_ones(
    length: int, is_long: bool, salt: str
) -> None:
    rope = replace(MODEL.rope, kind="longrope", original_max_position=64, short_factors=(1.0,), long_factors=(2.0,))
    wide = InputProcessor(byte_tokenizer(), replace(MODEL, rope=rope), 128)
    request = wide.prepare([1] * length, SamplingParams(), "r", RequestOptions(cache_salt=salt), arrival_s=0.0).request
    assert (request.cache_salt != salt) == is_long
