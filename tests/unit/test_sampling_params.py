"""SamplingParams: None is the default, every value is checked when the object is made, what is absent is refused by name."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np
import pytest

from octavo.errors import InvalidRequestError
from octavo.sampling_params import ABSENT, RequestOutputKind, SamplingParams


def made(**fields: Any) -> SamplingParams:
    return SamplingParams(**fields)


@pytest.mark.parametrize("field", [name for name in SamplingParams.__struct_fields__ if name != "max_tokens"])
def test_none_is_the_default(field: str) -> None:
    if field not in ("bad_words_ids", "shown_token_ids"):
        assert made(**{field: None}) == SamplingParams()


def test_max_tokens_none_is_a_meaning_of_its_own() -> None:
    assert made(max_tokens=None).max_tokens is None and SamplingParams().max_tokens == 16


@pytest.mark.parametrize(
    ("field", "given", "kept"),
    [
        ("stop", "END", ["END"]),
        ("stop", ("a", "b"), ["a", "b"]),
        ("bad_words", "no", ["no"]),
        ("logit_bias", {"50256": -100}, {50256: -100.0}),
        ("logit_bias", {np.int64(7): np.float32(1.5)}, {7: 1.5}),
        ("logit_bias", {1: 101, 2: -1e30, 3: 10**400, 4: 100}, {1: 100.0, 2: -100.0, 3: 100.0, 4: 100.0}),
        ("stop_token_ids", (1, 2), [1, 2]),
        ("allowed_token_ids", (7, np.int64(3), 7, 5.0), [3, 5, 7]),
        ("max_tokens", 5.0, 5),
        ("n", np.int32(3), 3),
        ("temperature", 1, 1.0),
        ("top_k", 2**70, 2**70),
        ("max_tokens", 2**63 - 1, 2**63 - 1),
        ("output_kind", RequestOutputKind.DELTA, RequestOutputKind.DELTA),
    ],
)
def test_values_in_other_forms_are_taken(field: str, given: Any, kept: Any) -> None:
    value = getattr(made(**{field: given}), field)
    assert value == kept and type(value) is type(kept)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("allowed_token_ids", [], "allowed_token_ids is empty"),
        ("allowed_token_ids", 5, "allowed_token_ids is 5; it must be a list of token ids"),
        ("allowed_token_ids", [1, -1], "allowed_token_ids is -1"),
        ("allowed_token_ids", "12", "a list of token ids"),
        ("max_tokens", -5, "max_tokens is -5; it must be 1 or more"),
        ("max_tokens", 0, "max_tokens is 0; it must be 1 or more"),
        ("top_k", -2, "top_k is -2; it must be -1 or more"),
        ("top_p", 0, "top_p is 0; it must be above 0 and at most 1"),
        ("temperature", 10**400, "it must be 0 to 100"),
        ("temperature", float("nan"), "temperature is nan; it must be a number, 0 to 100"),
        ("temperature", "hot", "temperature is 'hot'; it must be a number"),
        ("n", True, "n is True; it must be a whole number"),
        ("n", 1.5, "n is 1.5; it must be a whole number, 1 to 64"),
        ("seed", 2**64, "it must be a whole number of 64 bits"),
        ("presence_penalty", 3, "presence_penalty is 3; it must be -2 to 2"),
        ("logprobs", 21, "logprobs is 21; it must be 0 to 20"),
        ("stop", [1], "it must be a text or a list of texts"),
        ("stop", ["a"] * 17, "stop has 17 texts; at most 16"),
        ("bad_words", [""], "bad_words contains an empty text"),
        ("stop_token_ids", "12", "it must be a list of token ids"),
        ("logit_bias", {"a": 1}, "logit_bias has the key 'a'; keys are token ids"),
        ("logit_bias", {"9" * 5000: 1}, "keys are token ids"),
        ("logit_bias", {1: float("nan")}, "logit_bias is nan; it must be a number"),
        ("logit_bias", {1: True}, "logit_bias is True; it must be a number"),
        ("ignore_eos", 1, "ignore_eos is 1; it must be True or False"),
        ("output_kind", "delta", "RequestOutputKind.CUMULATIVE"),
    ],
)
def test_a_wrong_value_is_refused_at_construction_in_words(field: str, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        made(**{field: value})
    assert isinstance(caught.value, InvalidRequestError) and caught.value.param == field
    assert len(caught.value.message) < 300


def test_fields_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="min_tokens is 9, more than max_tokens, 8"):
        made(min_tokens=9, max_tokens=8)
    with pytest.raises(InvalidRequestError, match="stop needs the text"):
        made(stop="x", detokenize=False)


@pytest.mark.parametrize("field", ABSENT)
def test_what_is_absent_is_refused_with_the_way_out_and_its_neutral_values_pass(field: str) -> None:
    neutral, instead = ABSENT[field]
    with pytest.raises(InvalidRequestError, match=re.escape(instead)) as caught:
        made(**{field: object()})
    assert (caught.value.param, caught.value.code) == (field, "unsupported_field")
    for value in neutral:
        assert made(**{field: value}) == SamplingParams()


def test_best_of_equal_to_n_asks_for_nothing() -> None:
    assert made(n=2, best_of=2) == made(n=2)
    with pytest.raises(InvalidRequestError, match="best_of"):
        made(n=2, best_of=3)


def test_clone_shares_nothing_and_checks_again() -> None:
    params = made(stop=["a"], logit_bias={1: 1.0}, bad_words=["b"], stop_token_ids=[3])
    copy = params.clone()
    assert copy == params
    params.stop.append("z")
    params.stop_token_ids.append(4)
    assert params.logit_bias is not None
    params.logit_bias[2] = 2.0
    assert (copy.stop, copy.stop_token_ids, copy.logit_bias) == (["a"], [3], {1: 1.0})
    params.temperature = -1.0
    with pytest.raises(InvalidRequestError, match="temperature"):
        params.clone()


def test_it_crosses_the_wire_unchanged() -> None:
    params = made(stop="a", logit_bias={5: 1}, bad_words=["b"], max_tokens=None, output_kind=RequestOutputKind.FINAL_ONLY)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params


def test_token_ids_are_checked_against_the_vocabulary() -> None:
    for fields in ({"stop_token_ids": [10]}, {"logit_bias": {"10": 1}}, {"logit_bias": {2**62: 1}}):
        with pytest.raises(InvalidRequestError, match="the vocabulary has ids 0 to 9"):
            made(**fields).validate(10)
