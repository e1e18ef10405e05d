"""Values of a JSON body that no model of fields describes: read one by one, with errors that name their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from octavo.errors import InvalidRequestError
from octavo.server.body import MAX_SHOWN

MAX_ENTRIES = 4096
"""Most messages, items, parts, tools or documents of one list."""


def optional(value: Mapping[str, Any], key: str, kind: type, where: str) -> None:
    """Raise InvalidRequestError unless the value at this key is of this kind, or None, or absent."""
    words = {str: "a string", bool: "true or false", dict: "an object"}
    if value.get(key) is not None and not isinstance(value[key], kind):
        raise wrong(f"{where}.{key}", f"must be {words[kind]}", "invalid_type")


def as_list(value: Any, where: str, kinds: str = "a list") -> list[Any]:
    """value if it is a list of at most MAX_ENTRIES entries; kinds: what it may be, in words. Raises InvalidRequestError."""
    if not isinstance(value, list):
        raise wrong(where, f"must be {kinds}", "invalid_type")
    if len(value) > MAX_ENTRIES:
        raise wrong(where, f"has {len(value)} entries; at most {MAX_ENTRIES} are allowed")
    return value


def parts_of(value: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """As objects_of, where a text may stand in place of the list; the caller has looked for it. Raises InvalidRequestError."""
    return objects_of(value, where, "a string or a list")


def objects_of(value: Any, where: str, kinds: str = "a list") -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, object) for each entry of a list of objects; kinds: see as_list. Raises InvalidRequestError."""
    for index, item in enumerate(as_list(value, where, kinds)):
        place = f"{where}[{index}]"
        yield place, as_object(item, place)


def as_object(value: Any, where: str) -> dict[str, Any]:
    """value if it is an object. Raises InvalidRequestError."""
    if not isinstance(value, dict):
        raise wrong(where, "must be an object", "invalid_type")
    return value


def text_of(value: Mapping[str, Any], key: str, where: str) -> str:
    """The text at a key of an object that stands at `where`. Raises InvalidRequestError."""
    text = value.get(key)
    if text is None:
        raise wrong(f"{where}.{key}", "is required", "missing_field")
    if not isinstance(text, str):
        raise wrong(f"{where}.{key}", "must be a string", "invalid_type")
    return text


def wrong_value(where: str, value: Any, wanted: str) -> InvalidRequestError:
    """The error of a field whose value is not among those that are wanted."""
    text = repr(value)
    return wrong(where, f"is {text[:MAX_SHOWN]}{'...' * (len(text) > MAX_SHOWN)}; it must be {wanted}")


def wrong(where: str, what: str, code: str = "invalid_value") -> InvalidRequestError:
    """The error of the field at `where`; what: the rest of the sentence that begins with it."""
    return InvalidRequestError(f"{where} {what}", param=where, code=code)


def shown(value: Any) -> str:
    """A value in an error, short."""
    return repr(value)[:64]
