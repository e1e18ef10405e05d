"""What a rewritten schema accepts, the given one accepts, too: jsonschema says so, value by value."""

from __future__ import annotations

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from octavo.grammar.negation import Schemas
from octavo.grammar.rewrite import rewritten
from octavo.grammar.source import grammar_source
from octavo.structured_outputs import StructuredOutputsParams

VALUES: list[Any] = [
    *(None, True, False, 0, 1, 2, 3, 5, -1, 1.5, 2.5, "", "a", "b", "ab", "abc", "red", "rex", "blue", "\n", "\u4e2d"),
    *([], [1], ["a"], [1, 2], ["a", "b", "c"], {}, {"a": 1}, {"a": "x"}, {"a": None}, {"b": 1}, {"a": 1, "b": 2}),
    *({"a": "x", "b": "y"}, {"a": 1, "b": 2, "c": 3}, {"kind": "red"}, {"kind": "blue", "a": 1}, {"kind": "red", "a": 1}),
    *({"a": [1], "c": "red"}, {"a": {"b": 1}}, {"not": 1}, {"if": "a"}, {"oneOf": 2, "a": 1}),
]
NOTS: list[Any] = [
    {"type": "string"},
    {"type": ["integer", "null"]},
    {"type": "number"},
    {"enum": ["red", "rex", "", None, True]},
    {"enum": [1, 2, 5]},
    {"const": "ab"},
    {"const": {"a": 1}},
    {"required": ["a"]},
    {"required": ["a", "b"]},
    {"properties": {"a": {"type": "integer"}}},
    {"properties": {"kind": {"const": "red"}}, "required": ["kind"]},
    {"minLength": 2},
    {"maxLength": 1, "type": "string"},
    {"minimum": 2},
    {"exclusiveMaximum": 1},
    {"minItems": 1},
    {"maxProperties": 1},
    {"anyOf": [{"type": "string"}, {"minimum": 3}]},
    {"allOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"not": {"type": "object"}},
    {"oneOf": [{"type": "string"}, {"type": "null"}]},
    {"$ref": "#/definitions/word"},
    {"type": "string", "pattern": "^a", "minLength": 2},
]
OTHERS: list[Any] = [
    {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"oneOf": [{"required": ["a", "b"]}, {"required": ["kind"]}, {"required": ["c"]}], "type": "object"},
    {"oneOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "string"}}}], "type": "object"},
    {"oneOf": [{"maxLength": 0}, {"minLength": 1}], "type": "string"},
    {"oneOf": [{"enum": ["red"]}, {"type": "string"}]},
    {"oneOf": [{"type": "string", "pattern": "^red"}, {"type": "string", "pattern": "^rex"}, {"type": "null"}]},
    {"oneOf": [{"type": "number"}, {"type": "string"}, {"const": 1}]},
    {"dependencies": {"a": ["b"]}, "type": "object"},
    {"dependencies": {"a": {"required": ["b", "c"]}, "kind": {"properties": {"kind": {"const": "blue"}}}}, "type": "object"},
    {
        "if": {"properties": {"kind": {"const": "red"}}, "required": ["kind"]},
        "then": {"required": ["a"]},
        "else": {"maxProperties": 1},
    },
    {"if": {"type": "string"}, "then": {"minLength": 2}},
    {"if": {"type": "integer"}, "else": {"type": "string"}},
    {"type": "object", "properties": {"not": {"type": "integer"}, "if": {"type": "string"}, "a": {"not": {"type": "string"}}}},
    {"items": {"not": {"const": 1}}, "type": "array"},
]


def accepts(schema: Any, value: Any) -> bool:
    return bool(jsonschema.Draft7Validator(schema).is_valid(value))


def document(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "definitions": {"word": {"type": "string", "minLength": 2}}}


@pytest.mark.parametrize("schema", [*({"not": no} for no in NOTS), *OTHERS], ids=str)
def test_a_rewritten_schema_is_never_wider_and_can_be_compiled(schema: dict[str, Any]) -> None:
    given = document(schema)
    other = rewritten(given)
    assert other is not None
    wrong = [value for value in VALUES if accepts(other, value) and not accepts(given, value)]
    assert not wrong and any(accepts(other, value) for value in VALUES)
    assert grammar_source(StructuredOutputsParams(json=given))


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"required": ["a", "b"]}},
        {"not": {"type": ["string", "null"]}},
        {"not": {"properties": {"kind": {"const": "red"}}}},
        {"not": {"enum": ["red", "", None]}},
        *OTHERS[:5],
        *OTHERS[7:11],
    ],
    ids=str,
)
def test_most_are_said_in_full(schema: dict[str, Any]) -> None:
    other = rewritten(document(schema))
    assert [value for value in VALUES if accepts(other, value)] == [value for value in VALUES if accepts(schema, value)]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"not": {"pattern": "a"}},
        {"not": {"items": {"type": "string"}}},
        {"not": {"$ref": "#/definitions/none"}},
        {"not": {"$ref": "http://127.0.0.1/x"}},
        {"definitions": {"loop": {"$ref": "#/definitions/loop"}}, "not": {"$ref": "#/definitions/loop"}},
        {"oneOf": [{"pattern": "a"}, {"pattern": "b"}]},
        {"oneOf": [{"pattern": "^ab?"}, {"pattern": "^a"}], "type": "string"},
        {"if": {"pattern": "a"}, "then": False},
        {"enum": [{"not": {"type": "string"}}]},
        {"uniqueItems": True},
    ],
    ids=str,
)
def test_what_cannot_be_said_in_another_way_stays(schema: dict[str, Any]) -> None:
    assert rewritten(schema) is None


def test_negations_of_all_and_nothing() -> None:
    schemas = Schemas({})
    assert schemas.negation({}) is False and schemas.negation(True) is False and schemas.negation({"title": "x"}) is False
    assert schemas.negation(False) is True and schemas.negation({"pattern": "a"}) is None


@pytest.mark.parametrize("first", [*NOTS, *(schema for schema in OTHERS if "oneOf" not in schema)], ids=str)
def test_schemas_called_disjoint_share_no_value(first: Any) -> None:
    for second in NOTS:
        if Schemas(document({})).disjoint(document(first), document(second)):
            assert not [value for value in VALUES if accepts(document(first), value) and accepts(document(second), value)]


def test_a_document_that_grows_too_much_is_left_alone() -> None:
    wide = {"oneOf": [{"properties": {f"p{i}": {"oneOf": [{"required": [f"q{j}"]} for j in range(40)]}}} for i in range(40)]}
    assert rewritten(wide) is None
