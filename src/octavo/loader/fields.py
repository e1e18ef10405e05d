"""Fields: typed, bounded reading of the keys of a checkpoint's own configuration (config.json or GGUF metadata)."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from octavo.errors import LoadError

MAX_JSON_BYTES = 256 << 20
"""Largest JSON file that is read; a tokenizer.json or an index of a huge model stays below 100 MB."""


class Fields:
    """A mapping with typed getters; `prefix` is put before every key (GGUF: "llama.").

    A key that is absent or null gives `default`; without a default it is an error. Every error names file, key and value.
    """

    __slots__ = ("prefix", "source", "values")

    def __init__(self, values: Mapping[str, object], source: str, prefix: str = "") -> None:
        self.values = values
        self.source = source
        self.prefix = prefix

    def has(self, key: str) -> bool:
        return self.values.get(self.prefix + key) is not None

    def error(self, key: str, message: str) -> LoadError:
        return LoadError(f"{self.source}: {self.prefix}{key} {message}")

    def value(self, key: str) -> object:
        """The raw value; an error when absent."""
        value = self.values.get(self.prefix + key)
        if value is None:
            raise self.error(key, "is missing")
        return value

    def integer(self, key: str, default: int | None = None, *, low: int = 1, high: int = 1 << 31) -> int:
        if default is not None and not self.has(key):
            return default
        value = self.value(key)
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not whole or not isinstance(value, int | float):
            raise self.error(key, f"is {_shown(value)}, expected an integer")
        if not low <= value <= high:
            raise self.error(key, f"is {value}, expected {low} to {high}")
        return int(value)

    def number(
        self, key: str, default: float | None = None, *, low: float = 0.0, high: float = 1e12, low_open: bool = False
    ) -> float:
        if default is not None and not self.has(key):
            return default
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"is {_shown(value)}, expected a number")
        if not low <= value <= high or (low_open and value == low):
            raise self.error(key, f"is {value}, expected {'more than ' if low_open else ''}{low} to {high}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        if not self.has(key):
            return default
        value = self.value(key)
        if not isinstance(value, bool):
            raise self.error(key, f"is {_shown(value)}, expected true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        if default is not None and not self.has(key):
            return default
        value = self.value(key)
        if not isinstance(value, str):
            raise self.error(key, f"is {_shown(value)}, expected a string")
        return value

    def optional_number(self, key: str, *, low: float = 0.0, high: float = 1e12, low_open: bool = False) -> float | None:
        return self.number(key, low=low, high=high, low_open=low_open) if self.has(key) else None

    def optional_integer(self, key: str, *, low: int = 0, high: int = 1 << 31) -> int | None:
        return self.integer(key, low=low, high=high) if self.has(key) else None

    def numbers(self, key: str, length: int) -> tuple[float, ...]:
        """A list of exactly `length` finite positive numbers."""
        value = self.value(key)
        if not isinstance(value, list) or len(value) != length:
            raise self.error(key, f"is {_shown(value)}, expected a list of {length} numbers")
        for item in value:
            if isinstance(item, bool) or not isinstance(item, int | float) or not 0 < item < math.inf:
                raise self.error(key, f"holds {_shown(item)}, expected finite numbers above 0")
        return tuple(float(item) for item in value)

    def section(self, key: str) -> Fields | None:
        """A nested object, or None when absent or null."""
        if not self.has(key):
            return None
        value = self.value(key)
        if not isinstance(value, dict):
            raise self.error(key, f"is {_shown(value)}, expected an object")
        return Fields(value, f"{self.source}: {self.prefix}{key}")

    def token_ids(self, key: str, vocab_size: int) -> tuple[int, ...]:
        """One token id or a list of them; absent gives none. Raises: LoadError for an id outside the vocabulary."""
        if not self.has(key):
            return ()
        value = self.value(key)
        ids = value if isinstance(value, list) else [value]
        if len(ids) > 64:
            raise self.error(key, f"lists {len(ids)} token ids, expected at most 64")
        for token_id in ids:
            if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < vocab_size:
                raise self.error(key, f"holds {_shown(token_id)}, expected token ids from 0 to {vocab_size - 1}")
        return tuple(ids)


def read_json_object(path: Path) -> dict[str, object]:
    """Parse a JSON file whose top level is an object. Raises: LoadError naming the file, in one line."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise LoadError(f"{path}: {path.stat().st_size} bytes of JSON, more than the limit of {MAX_JSON_BYTES}")
        text = path.read_bytes().decode()
    except FileNotFoundError:
        raise LoadError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise LoadError(f"{path}: not valid UTF-8") from None
    except OSError as error:
        raise LoadError(f"{path}: cannot be read ({error.strerror})") from None
    return parse_json_object(text, str(path))


def parse_json_object(text: str, source: str) -> dict[str, object]:
    """Parse JSON text whose top level is an object without repeated keys. Raises: LoadError naming the source."""
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise LoadError(f"{source}: JSON nested too deeply") from None
    except ValueError as error:
        raise LoadError(f"{source}: not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise LoadError(f"{source}: expected a JSON object at the top, found {_shown(value)}")
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        repeated = counts.most_common(1)[0][0]
        raise ValueError(f"key {repeated!r} appears twice")
    return values


def _shown(value: object) -> str:
    """A value for an error message, never longer than a few words."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
