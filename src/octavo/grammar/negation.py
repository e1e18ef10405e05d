"""negation, disjoint: what a JSON schema excludes, as far as schemas can say it.

Both are safe, not complete: a value that `negation` accepts is never accepted by the schema, and schemas that are `disjoint`
have no value in common. Values that cannot be told for sure are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

Schema = dict[str, Any] | bool

TYPES = ("null", "boolean", "object", "array", "number", "string")
MAX_DEPTH = 12
MAX_NUMBERS = 8
MAX_TEXT = 2000
"""Characters of all texts of an enum that are told apart from others."""

_BOUNDS = {
    "minLength": ("string", "maxLength", -1),
    "maxLength": ("string", "minLength", 1),
    "minItems": ("array", "maxItems", -1),
    "maxItems": ("array", "minItems", 1),
    "minProperties": ("object", "maxProperties", -1),
    "maxProperties": ("object", "minProperties", 1),
    "minimum": ("number", "exclusiveMaximum", 0),
    "maximum": ("number", "exclusiveMinimum", 0),
    "exclusiveMinimum": ("number", "maximum", 0),
    "exclusiveMaximum": ("number", "minimum", 0),
}
"""Keyword -> the type that it bounds, and the bound that everything beyond it has."""
_MEANINGLESS = frozenset(
    ("title", "description", "default", "examples", "example", "$comment", "$schema", "$id", "id", "definitions", "$defs")
)
_PLAIN = re.compile(r"\^([\w \-]*)")


class Schemas:
    """Schemas of one document, whose `$ref` can be followed."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def resolve(self, schema: Any) -> Any:
        """The schema that a chain of `$ref` within the document ends at; None where it leads nowhere."""
        for _ in range(MAX_DEPTH):
            if not isinstance(schema, dict) or "$ref" not in schema:
                return schema
            schema = self._at(schema["$ref"])
        return None

    def negation(self, schema: Any, depth: int = 0) -> Schema | None:
        """A schema that accepts nothing that `schema` accepts, and as much else as can be; None if nothing is left for sure.

        False is exact: everything is accepted.
        """
        schema = self.resolve(schema)
        if schema is None or depth > MAX_DEPTH:
            return None
        if isinstance(schema, bool):
            return not schema
        if not isinstance(schema, dict):
            return None
        if not schema.keys() - _MEANINGLESS:
            return False
        parts = list(self._parts(schema, depth + 1))
        return any_of(parts) if parts else None

    def disjoint(self, first: Any, second: Any, depth: int = 0) -> bool:
        """Whether no value can be accepted by both."""
        first, second = self.resolve(first), self.resolve(second)
        if first is False or second is False:
            return True
        if not isinstance(first, dict) or not isinstance(second, dict) or depth > MAX_DEPTH:
            return False
        shared = _types(first) & _types(second)
        if not shared:
            return True
        values = _values(first), _values(second)
        if values[0] is not None and values[1] is not None and not values[0] & values[1]:
            return True
        if shared == {"string"}:
            return _have_other_beginnings(first.get("pattern"), second.get("pattern"))
        return shared == {"object"} and self._objects_are_disjoint(first, second, depth + 1)

    def _objects_are_disjoint(self, first: dict[str, Any], second: dict[str, Any], depth: int) -> bool:
        for one, other in ((first, second), (second, first)):
            properties, required = other.get("properties", {}), one.get("required", [])
            if not isinstance(properties, dict) or not isinstance(required, list):
                return False
            is_closed = other.get("additionalProperties") is False and not other.get("patternProperties")
            for name in required:
                if name not in properties:
                    if is_closed:
                        return True
                elif self.disjoint(_property(one, name), properties[name], depth):
                    return True
        return False

    def _parts(self, schema: dict[str, Any], depth: int) -> Iterator[Schema]:
        """Schemas of which each makes one keyword of `schema` fail. Keywords that cannot be made to fail give none."""
        if "type" in schema and (others := [name for name in TYPES if name not in _types(schema)]):
            yield {"type": others}
        values = schema.get("enum") if "enum" in schema else [schema["const"]] if "const" in schema else None
        if isinstance(values, list):
            yield from _other_values(values)
        for key, (kind, opposite, step) in _BOUNDS.items():
            bound = schema.get(key)
            if isinstance(bound, int | float) and not isinstance(bound, bool) and not (step < 0 and bound < 1):
                yield {"type": kind, opposite: bound + step}
        for name in schema.get("required", ()) if isinstance(schema.get("required"), list) else ():
            yield {"type": "object", "properties": {name: False}}
        properties = schema.get("properties")
        for name, inner in properties.items() if isinstance(properties, dict) else ():
            if _is_of_use(no := self.negation(inner, depth)):
                yield {"type": "object", "properties": {name: no}, "required": [name]}
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list):
                nots = [self.negation(inner, depth) for inner in schema[key]]
                if all(_is_of_use(no) for no in nots):
                    yield {"allOf": nots}
        for inner in schema.get("allOf", ()) if isinstance(schema.get("allOf"), list) else ():
            if _is_of_use(no := self.negation(inner, depth)):
                assert no is not None
                yield no
        if "not" in schema and _is_of_use(schema["not"]):
            yield schema["not"]

    def _at(self, ref: Any) -> Any:
        if not isinstance(ref, str) or not ref.startswith("#"):
            return None
        place = self._root
        for name in ref[1:].split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            if isinstance(place, dict) and name in place:
                place = place[name]
            elif isinstance(place, list) and name.isdigit() and int(name) < len(place):
                place = place[int(name)]
            else:
                return None
        return place


def any_of(schemas: Sequence[Schema]) -> Schema:
    return schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}


def _is_of_use(schema: Any) -> bool:
    return schema is True or isinstance(schema, dict)


def _property(schema: dict[str, Any], name: str) -> Any:
    properties = schema.get("properties")
    return properties.get(name, True) if isinstance(properties, dict) else True


def _types(schema: dict[str, Any]) -> set[str]:
    """Of the values it may accept; whole numbers are numbers."""
    types = schema.get("type", TYPES)
    names = {types} if isinstance(types, str) else set(types) if isinstance(types, list | tuple) else set(TYPES)
    if "integer" in names:
        names = names - {"integer"} | {"number"}
    values = schema.get("enum") if "enum" in schema else [schema["const"]] if "const" in schema else None
    return names & {_type_of(value) for value in values} if isinstance(values, list) else names


def _type_of(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    kinds = ((str, "string"), (dict, "object"), (list, "array"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "number")


def _values(schema: dict[str, Any]) -> set[str] | None:
    """The values of enum or const as texts; None if there may be others, or some that can be written in several ways."""
    values = schema.get("enum") if "enum" in schema else [schema["const"]] if "const" in schema else None
    if not isinstance(values, list) or not all(isinstance(value, str | bool | int | None) for value in values):
        return None
    return {json.dumps(value) for value in values}


def _have_other_beginnings(first: Any, second: Any) -> bool:
    """Whether two patterns begin with texts of which neither begins with the other."""
    if not isinstance(first, str) or not isinstance(second, str) or "|" in first + second:
        return False
    found = _PLAIN.match(first), _PLAIN.match(second)
    if found[0] is None or found[1] is None:
        return False
    # What stands last may be repeated, or be optional.
    texts = [match[1] if match.end() == len(match.string) else match[1][:-1] for match in found if match is not None]
    length = min(map(len, texts))
    return texts[0][:length] != texts[1][:length]


def _other_values(values: list[Any]) -> Iterator[Schema]:
    types = {_type_of(value) for value in values}
    if others := [name for name in TYPES if name not in types]:
        yield {"type": others}
    booleans = {value for value in values if isinstance(value, bool)}
    if len(booleans) == 1:
        yield {"const": not booleans.pop()}
    texts = {value for value in values if isinstance(value, str)}
    if texts and sum(map(len, texts)) <= MAX_TEXT:
        yield {"type": "string", "pattern": f"^(?:{_other_texts(sorted(texts))})$"}
    numbers = sorted({value for value in values if _type_of(value) == "number"})
    if 0 < len(numbers) <= MAX_NUMBERS:
        yield {"type": "number", "exclusiveMaximum": numbers[0]}
        for low, high in zip(numbers, numbers[1:], strict=False):
            yield {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": high}
        yield {"type": "number", "exclusiveMinimum": numbers[-1]}


def _other_texts(texts: list[str]) -> str:
    """A regular expression for every text but these, which are rests of texts that begin alike."""
    by_first: dict[str, list[str]] = {}
    for text in texts:
        if text:
            by_first.setdefault(text[0], []).append(text[1:])
    options = [f"[^{''.join(map(_escaped, by_first))}](?:.|\\n)*"] if by_first else ["(?:.|\\n)+"]
    options += [f"{_escaped(first)}(?:{_other_texts(rests)})" for first, rests in by_first.items()]
    return "|".join([*options, ""] if "" not in texts else options)


def _escaped(character: str) -> str:
    return character if character.isalnum() and character.isascii() else f"\\x{{{ord(character):x}}}"
