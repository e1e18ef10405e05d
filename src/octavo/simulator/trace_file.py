"""read_trace: CSV and JSONL files of requests, octavo's own columns and those of the public traces."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from octavo.errors import ConfigError
from octavo.simulator.trace import Shared, Trace, make_trace

MAX_TOKENS = 2**24
MAX_CONTENT_ID = 2**30
MOONCAKE_BLOCK = 512
"""Tokens of a prompt that one entry of Mooncake's hash_ids stands for."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column holds what. arrival_unit_s: seconds per unit of a numeric arrival; a date and time needs none."""

    arrival: str
    num_prompt: str
    num_output: str
    arrival_unit_s: float = 1.0


KNOWN_COLUMNS: dict[str, Columns] = {
    "octavo": Columns("arrival", "input_tokens", "output_tokens"),
    "Azure LLM inference": Columns("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    "Mooncake": Columns("timestamp", "input_length", "output_length", 1e-3),
    "ServeGen": Columns("timestamp", "input_tokens", "output_tokens"),
    "BurstGPT": Columns("Timestamp", "Request tokens", "Response tokens"),
}
"""The three columns that every trace has. Optional in all: tenant, priority, prefix_id, prefix_tokens, hash_ids."""

Row = Mapping[str, Any]


def read_trace(path: Path, limit: int | None = None) -> Trace:
    """The first `limit` requests of a file, told apart by their columns. Raises ConfigError naming file, line and column."""
    arrivals: list[float] = []
    prompts: list[int] = []
    outputs: list[int] = []
    tenants: list[str] = []
    priorities: list[int] = []
    shared: list[Shared] = []
    contents: dict[str, int] = {}
    columns: Columns | None = None
    for line, row in _rows(path):
        if columns is None:
            columns = _recognise(path, row)
        where = _Place(path, line)
        arrivals.append(where.arrival(row, columns))
        prompts.append(where.count(row, columns.num_prompt, 1, MAX_TOKENS))
        # A request that was cut off before its first token still cost its prefill and that token's step.
        outputs.append(max(1, where.count(row, columns.num_output, 0, MAX_TOKENS)))
        tenants.append(str(row.get("tenant") or ""))
        priorities.append(where.count(row, "priority", -(2**31), 2**31) if row.get("priority") not in (None, "") else 0)
        shared.append(where.shared(row, prompts[-1], contents))
        if limit is not None and len(arrivals) >= limit:
            break
    return make_trace(path.name, arrivals, prompts, outputs, tenant=tenants, priority=priorities, shared=shared)


def _rows(path: Path) -> Iterator[tuple[int, Row]]:
    """(line number, row) of each line with content: CSV with a header, or one JSON object per line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            if path.suffix.lower() in (".jsonl", ".ndjson", ".json"):
                decode = msgspec.json.Decoder(dict[str, Any]).decode
                for line, text in enumerate(file, start=1):
                    if text.strip():
                        try:
                            yield line, decode(text)
                        except msgspec.MsgspecError as error:
                            raise ConfigError(f"{path}, line {line}: not a JSON object: {error}", param="trace") from None
                return
            reader = csv.DictReader(file, strict=True)
            for row in reader:
                yield reader.line_num, row
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", param="trace") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a UTF-8 text", param="trace") from None
    except csv.Error as error:
        raise ConfigError(f"{path} is not a CSV file: {error}", param="trace") from None


def _recognise(path: Path, row: Row) -> Columns:
    for columns in KNOWN_COLUMNS.values():
        if {columns.arrival, columns.num_prompt, columns.num_output} <= row.keys():
            return columns
    known = "; ".join(f"{name}: {c.arrival}, {c.num_prompt}, {c.num_output}" for name, c in KNOWN_COLUMNS.items())
    found = ", ".join(str(name) for name in row)
    raise ConfigError(f"{path} has the columns {found}; known are {known}", param="trace")


@dataclass(frozen=True, slots=True)
class _Place:
    """A line of a file: reads its columns, and says where a wrong value stands."""

    path: Path
    line: int

    def wrong(self, column: str, value: object, wanted: str) -> ConfigError:
        shown = "missing" if value is None else repr(value)
        return ConfigError(f"{self.path}, line {self.line}, column {column}: {shown}; it must be {wanted}", param="trace")

    def count(self, row: Row, column: str, low: int, high: int) -> int:
        value = row.get(column)
        wanted = f"a whole number from {low} to {high}"
        try:
            number = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else math.nan
        except (ValueError, OverflowError):
            number = math.nan
        if not number.is_integer() or not low <= number <= high:
            raise self.wrong(column, value, wanted)
        return int(number)

    def arrival(self, row: Row, columns: Columns) -> float:
        """Seconds, from a number in the columns' unit or from a date and time."""
        value = row.get(columns.arrival)
        wanted = "a number of 0 or more, or a date and time like 2023-11-16 18:17:03.97"
        try:
            if isinstance(value, str) and ("-" in value[1:] or ":" in value) and "e-" not in value.lower():
                return _parse_time(value)
            seconds = float(value) * columns.arrival_unit_s if isinstance(value, (str, int, float)) else math.nan
        except (ValueError, OverflowError):
            raise self.wrong(columns.arrival, value, wanted) from None
        if not math.isfinite(seconds) or seconds < 0 or isinstance(value, bool):
            raise self.wrong(columns.arrival, value, wanted)
        return seconds

    def shared(self, row: Row, num_prompt: int, contents: dict[str, int]) -> Shared:
        """The shared beginning: Mooncake's blocks, or one prefix id over prefix_tokens (without them, over all of the prompt).

        contents numbers the prefix ids, which may be any text.
        """
        hash_ids = row.get("hash_ids")
        if hash_ids is not None:
            valid = isinstance(hash_ids, list) and all(type(i) is int and 0 <= i < MAX_CONTENT_ID for i in hash_ids)
            if not valid:
                raise self.wrong("hash_ids", hash_ids, f"a list of whole numbers from 0 to {MAX_CONTENT_ID - 1}")
            starts = range(0, num_prompt, MOONCAKE_BLOCK)
            return tuple(
                (content, min(MOONCAKE_BLOCK, num_prompt - start)) for content, start in zip(hash_ids, starts, strict=False)
            )
        prefix_id = row.get("prefix_id")
        if prefix_id is None or prefix_id == "":
            return ()
        tokens = num_prompt
        if row.get("prefix_tokens") not in (None, ""):
            tokens = min(num_prompt, self.count(row, "prefix_tokens", 0, MAX_TOKENS))
        return ((contents.setdefault(str(prefix_id), len(contents)), tokens),) if tokens else ()


def _parse_time(text: str) -> float:
    """Seconds of a date and time; digits of a second beyond the sixth, which Python cannot read, are kept."""
    head, dot, fraction = text.strip().rstrip("Z").partition(".")
    zone = ""
    for sign in "+-":
        fraction, found, rest = fraction.partition(sign)
        zone = found + rest if found else zone
    moment = datetime.fromisoformat(head.replace("/", "-") + zone)
    whole = moment.timestamp() if moment.tzinfo is not None else (moment - datetime(1970, 1, 1)).total_seconds()
    return whole + (float(f"0.{fraction}") if dot and fraction else 0.0)
