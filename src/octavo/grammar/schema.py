"""JSON schemas on their way to llguidance: bounds, formats that mean nothing, and where in the schema a fault lies."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from octavo.errors import InvalidRequestError

MAX_SCHEMA_BYTES = 512 << 10
MAX_SCHEMA_DEPTH = 64

_KNOWN_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown")
)
"""Formats that llguidance holds a string to. JSON Schema makes every other format an annotation, which accepts all strings."""
DATA_KEYS = frozenset(("enum", "const", "default", "examples", "example"))
"""Their values are data: what looks like a keyword inside them is none."""
NAME_KEYS = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"))
"""Their values map names to schemas: the names are no keywords."""
_UNIMPLEMENTED = re.compile(r"Unimplemented keys: (\[.*?\])")


def parse_schema(schema: str | bool | dict[str, Any], param: str) -> Any:
    """The schema as JSON values, without formats that are annotations only.

    Raises InvalidRequestError, naming param, for text that is not JSON, and for schemas beyond the limits of size and depth.
    """
    text = schema if isinstance(schema, str) else _dump(schema, param)
    if len(text) > MAX_SCHEMA_BYTES:
        raise InvalidRequestError(
            f"the JSON schema in {param} has {len(text)} characters; at most {MAX_SCHEMA_BYTES} are allowed", param=param
        )
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{param} is not valid JSON: {_short(str(error))}", param=param) from None
    if parsed is True:
        return {}
    if not isinstance(parsed, dict):
        raise InvalidRequestError(f"{param} must be a JSON schema: an object, or true", param=param)
    if _depth(parsed) > MAX_SCHEMA_DEPTH:
        raise InvalidRequestError(
            f"the JSON schema in {param} is nested more than {MAX_SCHEMA_DEPTH} levels deep; make it flatter, with $ref",
            param=param,
        )
    for place in list(_schemas(parsed, "#")):
        _drop_annotations(place[1])
    return parsed


def explain(message: str, schema: Any, param: str) -> InvalidRequestError:
    """The error for a schema that llguidance refused: it names the keyword, and its path in the schema."""
    found = _UNIMPLEMENTED.search(message)
    keywords = json.loads(found[1]) if found is not None else ["oneOf"] if message.startswith("oneOf constraints") else []
    for keyword in keywords:
        path = next((where for where, place in _schemas(schema, "#") if keyword in place), "#")
        if keyword == "oneOf":
            reason = "its branches may overlap, and then none can be told to be the only one; use anyOf"
        else:
            reason = "it cannot be enforced while a text is written; leave it out and check the answer"
        return InvalidRequestError(
            f"the JSON schema in {param} has the keyword {_short(keyword)} at {_short(path)}, which is not supported: {reason}",
            param=param,
            code="unsupported_schema",
        )
    return InvalidRequestError(f"the JSON schema in {param} cannot be used: {_short(message)}", param=param)


def _schemas(schema: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, schema) of a schema and of all schemas inside it."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for key, value in schema.items():
        here = f"{path}/{key}"
        if key in DATA_KEYS:
            continue
        if key in NAME_KEYS and isinstance(value, dict):
            for name, inner in value.items():
                yield from _schemas(inner, f"{here}/{name}")
        elif isinstance(value, dict):
            yield from _schemas(value, here)
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                yield from _schemas(inner, f"{here}/{index}")


def _drop_annotations(schema: dict[str, Any]) -> None:
    name = schema.get("format")
    if isinstance(name, str) and name not in _KNOWN_FORMATS:
        del schema["format"]


def _depth(value: Any) -> int:
    """Levels of objects and lists; counted without recursion, for the value comes from outside."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth


def _dump(schema: Any, param: str) -> str:
    try:
        return json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{param} cannot be written as JSON: {_short(str(error))}", param=param) from None


def _short(text: str) -> str:
    """At most 200 characters of what came from outside."""
    return text if len(text) <= 200 else text[:197] + "..."
