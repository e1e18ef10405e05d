"""Fields: typed, bounded reading of the keys of a checkpoint's own configuration (config.json or GGUF metadata)."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from octavo.errors import LoadError
from octavo.log import get_logger

MAX_JSON_BYTES = 64 << 20
"""Largest JSON file that is read; an index of a huge model, and the largest tokenizer.json known, have half of it."""
NO_TOKEN_IDS = (-1, 0xFFFFFFFF)

_logger = get_logger(__name__)


class Fields:
    """A mapping with typed getters; `prefix` is put before every key (GGUF: "llama.").

    A key that is absent or null gives `default`; without a default it is an error. Every error names file, key and value.
    quiet: log no warnings, because they were logged when the same file was read before.
    """

    __slots__ = ("prefix", "quiet", "source", "values")

    def __init__(self, values: Mapping[str, object], source: str, prefix: str = "", *, quiet: bool = False) -> None:
        self.values = values
        self.source = source
        self.prefix = prefix
        self.quiet = quiet

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
            raise self.error(key, f"is {shown(value)}, expected an integer")
        if not low <= value <= high:
            raise self.error(key, f"is {shown(value)}, expected {low} to {high}")
        return int(value)

    def number(
        self, key: str, default: float | None = None, *, low: float = 0.0, high: float = 1e12, low_open: bool = False
    ) -> float:
        if default is not None and not self.has(key):
            return default
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"is {shown(value)}, expected a number")
        if not low <= value <= high or (low_open and value == low):
            raise self.error(key, f"is {shown(value)}, expected {'more than ' if low_open else ''}{low} to {high}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        if not self.has(key):
            return default
        value = self.value(key)
        if not isinstance(value, bool):
            raise self.error(key, f"is {shown(value)}, expected true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        if default is not None and not self.has(key):
            return default
        value = self.value(key)
        if not isinstance(value, str):
            raise self.error(key, f"is {shown(value)}, expected a string")
        return value

    def optional_number(self, key: str, *, low: float = 0.0, high: float = 1e12, low_open: bool = False) -> float | None:
        return self.number(key, low=low, high=high, low_open=low_open) if self.has(key) else None

    def optional_integer(self, key: str, *, low: int = 0, high: int = 1 << 31) -> int | None:
        return self.integer(key, low=low, high=high) if self.has(key) else None

    def numbers(self, key: str, length: int) -> tuple[float, ...]:
        """A list of exactly `length` finite positive numbers."""
        value = self.value(key)
        if not isinstance(value, list) or len(value) != length:
            raise self.error(key, f"is {shown(value)}, expected a list of {length} numbers")
        for item in value:
            if isinstance(item, bool) or not isinstance(item, int | float) or not 0 < item < math.inf:
                raise self.error(key, f"holds {shown(item)}, expected finite numbers above 0")
        return tuple(float(item) for item in value)

    def section(self, key: str) -> Fields | None:
        """A nested object, or None when absent or null."""
        if not self.has(key):
            return None
        value = self.value(key)
        if not isinstance(value, dict):
            raise self.error(key, f"is {shown(value)}, expected an object")
        return Fields(value, f"{self.source}: {self.prefix}{key}", quiet=self.quiet)

    def token_ids(self, key: str, vocab_size: int) -> tuple[int, ...]:
        """One token id or a list of them; absent gives none. What is no id of the vocabulary is left out, with a warning unless
        it is a way to write "none" (-1, also as 32 unsigned bits): no token can be it."""
        if not self.has(key):
            return ()
        value = self.value(key)
        given = value if isinstance(value, list) else [value]
        ids = [i for i in given if isinstance(i, int) and not isinstance(i, bool) and 0 <= i < vocab_size]
        wrong = [i for i in given if i not in ids and i not in NO_TOKEN_IDS] if len(ids) < len(given) else []
        if wrong:
            self.warn(key, f"holds {shown(wrong[0])}, which is no token id from 0 to {vocab_size - 1}; it is ignored")
        return tuple(dict.fromkeys(ids))

    def advice(self, key: str, low: float, high: float, *, whole: bool = False) -> float | int | None:
        """A number that is only a recommendation: None when absent, and None with a warning when it is not from low to high."""
        if not self.has(key):
            return None
        value = self.value(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
            if not whole:
                return float(value)
            if value == int(value):
                return int(value)
        expected = "a whole number" if whole else "a number"
        self.warn(key, f"is {shown(value)}, expected {expected} from {low:g} to {high:g}; it is ignored")
        return None

    def warn(self, key: str, message: str) -> None:
        """Log one line about a value with which loading goes on, unless quiet."""
        if not self.quiet:
            _logger.warning("%s: %s%s %s", self.source, self.prefix, key, message)


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
        raise LoadError(f"{source}: expected a JSON object at the top, found {shown(value)}")
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        repeated = counts.most_common(1)[0][0]
        raise ValueError(f"key {shown(repeated)} appears twice")
    return values


def shown(value: object) -> str:
    """A value for an error message, never longer than a few words."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
