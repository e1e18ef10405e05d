"""Every form becomes a grammar that accepts what it should and nothing else; what cannot be honoured is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llguidance import LLMatcher
from tests.fakes import byte_tokenizer

from octavo.errors import InvalidRequestError
from octavo.grammar.matcher import GrammarVocabulary
from octavo.grammar.source import MAX_CHOICES, MAX_REGEX_LENGTH, grammar_source
from octavo.grammar.tokens import token_table
from octavo.structured_outputs import StructuredOutputsParams

TOKENIZER = byte_tokenizer()
VOCABULARY = GrammarVocabulary(token_table(TOKENIZER, TOKENIZER.eos_token_ids, TOKENIZER.vocab_size))


def accepts(params: StructuredOutputsParams, text: str) -> bool:
    """Whether text is a whole answer of the form."""
    source = grammar_source(params)
    assert source is not None
    matcher = LLMatcher(VOCABULARY.tokenizer, source, log_level=0)
    ids = TOKENIZER.encode(text, add_special_tokens=False, parse_special=False)
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def form(**fields: Any) -> StructuredOutputsParams:
    return StructuredOutputsParams(**fields)


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("params", "good", "bad"),
    [
        (form(choice=["yes", 'a "quoted" one', "\u00e9"]), ["yes", 'a "quoted" one', "\u00e9"], ["ye", "no", "yes "]),
        (form(regex=r"^\d{2}-[a-c]+$"), ["12-abc"], ["1-a", "12-", "12-d"]),
        (form(regex="a|bb"), ["a", "bb"], ["b", "ab"]),
        (
            form(json=PERSON),
            ['{"name":"Ann"}', '{"name": "Ann", "age": 3}'],
            ["{}", '{"name":"Annabel"}', '{"name":"A","x":1}'],
        ),
        (form(json=json.dumps(PERSON)), ['{"name":"Ann"}'], ["{}"]),
        (form(json=True), ["1", "[true]", '{"a":null}'], ["", "tru"]),
        (form(json_object=True), ["{}", '{"a": [1, 2]}'], ["[]", "1"]),
        (form(grammar='root ::= "(" root ")" | "x"'), ["x", "((x))"], ["(x", "xx"]),
        (form(grammar='start: "a" WORD\nWORD: /[0-9]+/'), ["a12"], ["a", "12"]),
        (
            form(
                structural_tag=json.dumps(
                    {"structures": [{"begin": "<f>", "schema": {"enum": [1]}, "end": "</f>"}], "triggers": ["<f"]}
                )
            ),
            ["free text", "so <f>1</f> done"],
            ["so <f>2</f>", "so <f"],
        ),
    ],
)
def test_a_form_accepts_its_answers_and_no_others(params: StructuredOutputsParams, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not accepts(params, text)] == []
    assert [text for text in bad if accepts(params, text)] == []


def test_white_space_is_bounded_or_absent() -> None:
    assert accepts(form(json=PERSON), '{\n  "name":   "A"\n}')
    assert not accepts(form(json=PERSON), "{" + 41 * " " + '"name":"A"}')
    assert not accepts(form(json=PERSON, disable_any_whitespace=True), '{ "name":"A"}')
    assert accepts(form(json=PERSON, whitespace_pattern="[ ]?"), '{ "name":"A"}')
    assert not accepts(form(json=PERSON, whitespace_pattern="[ ]?"), '{\n"name":"A"}')


def test_nothing_asked_for_is_no_grammar() -> None:
    for params in (form(), form(json=None, regex=None), form(json_object=False)):
        assert grammar_source(params) is None


def test_a_format_that_json_schema_makes_an_annotation_accepts_every_string() -> None:
    for name in ("url", "topic", "int32", "binary"):
        assert accepts(form(json={"type": "string", "format": name}), '"anything"')
    assert not accepts(form(json={"type": "string", "format": "ipv4"}), '"anything"')
    assert accepts(form(json={"properties": {"format": {"type": "string"}}, "type": "object"}), '{"format": "x"}')


@pytest.mark.parametrize(
    ("params", "param", "words"),
    [
        (form(json={"properties": {"a": {"not": {"pattern": "a"}}}}), "json", ["keyword not", "#/properties/a"]),
        (
            form(json={"items": {"anyOf": [True, {"uniqueItems": True, "type": "array"}]}}),
            "json",
            ["uniqueItems", "#/items/anyOf/1"],
        ),
        (form(json={"$defs": {"d": {"if": {"pattern": "a"}}}, "$ref": "#/$defs/d"}), "json", ["keyword if", "#/$defs/d"]),
        (form(json={"oneOf": [{"type": "string"}, {"pattern": "a"}]}), "json", ["oneOf", "at #,", "anyOf"]),
        (form(json="{"), "json", ["not valid JSON"]),
        (form(json="[1]"), "json", ["must be a JSON schema"]),
        (form(json={"type": "foo"}), "json", ["foo"]),
        (form(json={"$ref": "http://127.0.0.1/x"}), "json", ["http://127.0.0.1/x"]),
        (form(json='{"a":' * 100 + "1" + "}" * 100), "json", ["64 levels"]),
        (form(json={"enum": ["x" * 600_000]}), "json", ["characters"]),
        (form(regex="(?=a)b"), "regex", ["look-around"]),
        (form(regex="a" * (MAX_REGEX_LENGTH + 1)), "regex", [str(MAX_REGEX_LENGTH)]),
        (form(regex="["), "regex", ["unclosed"]),
        (form(choice=[]), "choice", ["list of texts"]),
        (form(choice=["a", ""]), "choice", ["none of them empty"]),
        (form(choice=["a"] * (MAX_CHOICES + 1)), "choice", [str(MAX_CHOICES)]),
        (form(grammar='root ::= missing "a"'), "grammar", ["missing"]),
        (form(grammar="("), "grammar", ["cannot be read"]),
        (form(structural_tag="{}"), "structural_tag", ["triggers"]),
        (
            form(structural_tag='{"structures": [{"begin": "<a>", "schema": {}, "end": ""}], "triggers": ["<b"]}'),
            "structural_tag",
            ["structure 0"],
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(params: StructuredOutputsParams, param: str, words: list[str]) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        grammar_source(params)
    assert (refusal.value.param or "").startswith(f"structured_outputs.{param}")
    assert all(word in refusal.value.message for word in words), refusal.value.message
    assert len(refusal.value.message) < 700 and "\n" not in refusal.value.message


def test_two_forms_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="regex and choice") as refusal:
        grammar_source(form(regex="a", choice=["a"]))
    assert refusal.value.param == "structured_outputs"
