"""Answers of the real model at temperature 1 have the form that was asked for, and end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from octavo import LLM, SamplingParams, StructuredOutputsParams

_STRING = {"type": "string", "maxLength": 12}
_WORD = {"type": "string", "pattern": "^[a-z]{2,8}$"}
_COUNT = {"type": "integer", "minimum": 0, "maximum": 99}
_COLOUR = {"enum": ["red", "green", "blue"]}


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def several(items: Any, low: int, high: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": low, "maxItems": high}


SCHEMAS: list[dict[str, Any]] = [
    _STRING,
    _WORD,
    _COUNT,
    _COLOUR,
    {"const": {"a": [1, None]}},
    {"type": "boolean"},
    {"type": "null"},
    {"type": "number", "minimum": -1, "maximum": 1},
    {"type": ["integer", "null"], "minimum": 5, "maximum": 7},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "uuid"},
    {"type": "string", "format": "ipv4"},
    {"type": "string", "minLength": 3, "maxLength": 5},
    closed(),
    closed(name=_STRING),
    closed(name=_WORD, age=_COUNT),
    closed(z=_COUNT, a=_COUNT, m=_COLOUR),
    {**closed(name=_WORD, age=_COUNT), "required": ["age"]},
    {**closed(name=_WORD, age=_COUNT), "required": []},
    closed(inner=closed(inner=closed(value=_COUNT))),
    closed(tags=several(_WORD, 1, 3)),
    several(_COUNT, 2, 4),
    several(_COLOUR, 0, 2),
    several(closed(x=_COUNT), 1, 2),
    {"type": "array", "prefixItems": [_COUNT, _WORD], "items": False, "minItems": 2},
    {"anyOf": [_COUNT, _WORD]},
    closed(value={"anyOf": [closed(kind={"const": "a"}, n=_COUNT), closed(kind={"const": "b"}, w=_WORD)]}),
    {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 9}]},
    {"$defs": {"node": closed(n=_COUNT)}, "type": "array", "items": {"$ref": "#/$defs/node"}, "minItems": 1, "maxItems": 2},
    {"type": "object", "additionalProperties": _COUNT, "maxProperties": 2},
]


@pytest.fixture(scope="module")
def llm(smollm2_gguf: Path) -> Iterator[LLM]:
    with LLM(str(smollm2_gguf), num_threads=2, max_model_len=512, max_num_seqs=32, num_gpu_blocks_override=600) as made:
        yield made


def params(form: Any, **fields: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 120, "seed": 7, "structured_outputs": form, **fields})


def test_every_schema_is_kept_at_temperature_1(llm: LLM) -> None:
    forms = [StructuredOutputsParams(json=schema, whitespace_pattern="[ ]?") for schema in SCHEMAS]
    outputs = llm.generate(["Some JSON:\n"] * len(forms), [params(form) for form in forms], use_tqdm=False)
    assert len(SCHEMAS) == 30
    for schema, output in zip(SCHEMAS, outputs, strict=True):
        choice = output.outputs[0]
        if choice.finish_reason == "length":  # nothing bounds the digits of a number
            assert schema["type"] == "number", (schema, choice)
            continue
        assert choice.finish_reason == "stop", (schema, choice)
        jsonschema.validate(json.loads(choice.text), schema, format_checker=jsonschema.FormatChecker())
    llm.llm_engine.check_integrity()


@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ({"choice": ["positive", "negative", "\u4e2d\u6027 \U0001f937"]}, "positive|negative|\u4e2d\u6027 \U0001f937"),
        ({"regex": r"\d{3}-[a-f]{4}"}, r"\d{3}-[a-f]{4}"),
        ({"grammar": 'root ::= "(" root ")" | "x"'}, r"\(*x\)*"),
    ],
)
@pytest.mark.parametrize(
    "fields", [{}, {"min_tokens": 90}, {"ignore_eos": True}, {"temperature": 0.0, "logprobs": 3}, {"n": 3}]
)
def test_other_forms_with_other_settings(llm: LLM, form: dict[str, Any], pattern: str, fields: dict[str, Any]) -> None:
    """The form is kept, whatever else is asked: it even ends before min_tokens where nothing but the end may come."""
    [output] = llm.generate("Say something:", params(form, **fields), use_tqdm=False)
    for choice in output.outputs:
        assert choice.finish_reason in ("stop", "length") and (choice.finish_reason == "stop" or "grammar" in form)
        assert re.fullmatch(pattern, choice.text) or choice.finish_reason == "length", choice


def test_an_answer_that_is_cut_says_so_and_one_that_stops_at_a_text_does_too(llm: LLM) -> None:
    form = {"regex": "[ab]{40}"}
    [cut] = llm.generate("x", params(form, max_tokens=3), use_tqdm=False)
    assert cut.outputs[0].finish_reason == "length" and re.fullmatch("[ab]+", cut.outputs[0].text)
    [stopped] = llm.generate("x", params(form, stop=["a", "b"], temperature=0.0), use_tqdm=False)
    assert (stopped.outputs[0].finish_reason, stopped.outputs[0].text) == ("stop", "")


def test_a_request_that_nothing_can_be_chosen_for_ends_alone(llm: LLM) -> None:
    free = SamplingParams(temperature=0.0, max_tokens=12)
    [expected] = llm.generate("The sea is", free, use_tqdm=False)
    prompts = ["The sea is", "Answer:", "The sea is"]
    impossible = params({"choice": ["q"]}, bad_words=["q"])
    first, failed, last = llm.generate(prompts, [free, impossible, free], use_tqdm=False)
    assert failed.outputs[0].finish_reason == "error" and "bad_words" in (failed.error or "")
    assert first.outputs[0].token_ids == last.outputs[0].token_ids == expected.outputs[0].token_ids


def test_allowed_token_ids_alone_and_with_what_else_shapes_an_answer(llm: LLM) -> None:
    digits = [llm.get_tokenizer().encode(digit, add_special_tokens=False)[0] for digit in "0123456789"]

    def ids(form: Any = None, **fields: Any) -> list[int]:
        sampling = SamplingParams(**{"max_tokens": 6, "seed": 3, "structured_outputs": form, **fields})
        [output] = llm.generate("A number:", sampling, use_tqdm=False)
        return list(output.outputs[0].token_ids)

    assert len(ids(allowed_token_ids=digits)) == 6 and set(ids(allowed_token_ids=digits)) <= set(digits)
    assert ids(allowed_token_ids=digits, logit_bias={digits[7]: 100}) == [digits[7]] * 6
    assert ids(allowed_token_ids=digits[:2], bad_words=["0"], min_tokens=6) == [digits[1]] * 6
    eos = llm.llm_engine.model_config.eos_token_ids[0]
    assert ids(allowed_token_ids=[eos], min_tokens=3) == [eos], "nothing else may be chosen"
    form = {"regex": "[0-9]{2} [a-z]|[0-9]{3}"}
    assert ids(form, allowed_token_ids=digits)[3:] == [eos] and set(ids(form, allowed_token_ids=digits)[:3]) <= set(digits)


def test_allowed_token_ids_that_leave_nothing_of_a_form_end_that_request(llm: LLM) -> None:
    failing = params({"choice": ["yes"]}, allowed_token_ids=[20, 21])
    [failed] = llm.generate("x", failing, use_tqdm=False)
    assert failed.outputs[0].finish_reason == "error" and "allowed_token_ids" in (failed.error or "")
    with pytest.raises(ValueError, match="allowed_token_ids names token id 49152; the vocabulary has ids 0 to 49151"):
        llm.generate("x", SamplingParams(allowed_token_ids=[5, 49152]), use_tqdm=False)


def test_a_refusal_names_the_keyword_and_nothing_is_left_behind(llm: LLM) -> None:
    with pytest.raises(ValueError, match="keyword not at #/properties/a"):
        llm.generate("x", params({"json": {"properties": {"a": {"not": {"pattern": "a"}}}}}), use_tqdm=False)
    llm.llm_engine.check_integrity()
