"""UsageStore: what each key has used, in a SQLite file that survives restarts and kills.

Tokens are reserved before a request runs and settled with the true number after. A reservation is charged when it is made, in
the transaction that checks the limits. So a process that is killed has charged at least what it gave; the rest of its open
reservations is not given back.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.config.server import ServerConfig
from octavo.errors import BusyError, ConfigError, InvalidRequestError, RateLimitError
from octavo.server.access.limits import KeyLimits

DAY_S = 86_400
KEPT_DAYS = 400
"""How long the use of a day is remembered, for bills."""
LOCK_TIMEOUT_S = 2.0
"""How long a transaction of another process on the same file is waited for."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS use (key TEXT, day INTEGER, requests INTEGER NOT NULL DEFAULT 0, tokens INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (key, day)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bucket (key TEXT, kind TEXT, level REAL NOT NULL, at_s REAL NOT NULL, PRIMARY KEY (key, kind))
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reservation (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, day INTEGER, tokens INTEGER, at_s REAL);
"""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Tokens that a request may use. tokens: of prompt and answer."""

    id: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left of one limit. reset_s: seconds until all of it is there again."""

    limit: int
    left: int
    reset_s: float


class UsageStore:
    """Belongs to one event loop. Every method is one transaction; several processes may share a file."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """clock: seconds since 1970. Raises ConfigError when the file cannot be opened."""
        self._clock = clock
        try:
            self._db = sqlite3.connect(path, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_SCHEMA)
            day = self._day()
            with self._transaction():
                self._db.execute("DELETE FROM use WHERE day < ?", (day - KEPT_DAYS,))
                self._db.execute("DELETE FROM reservation WHERE day < ?", (day - 1,))
        except (sqlite3.Error, BusyError) as error:
            raise ConfigError(
                f"--usage-db {path}: cannot be used: {error}; give a file in a folder that can be written", param="usage_db"
            ) from None

    def close(self) -> None:
        self._db.close()

    def take_request(self, key: str, limits: KeyLimits) -> None:
        """Count one request. Raises RateLimitError, and counts nothing, when a limit is reached."""
        with self._transaction():
            used, _ = self._used(key)
            level = self._level(key, "requests", limits.requests_per_minute)
            if limits.requests_per_day is not None and used >= limits.requests_per_day:
                raise self._day_over("requests", limits.requests_per_day)
            if limits.requests_per_minute is not None and level < 1:
                raise _minute_over("requests", limits.requests_per_minute, 1 - level)
            self._charge(key, self._day(), requests=1)
            self._set_level(key, "requests", limits.requests_per_minute, level - 1)

    def reserve(self, key: str, limits: KeyLimits, least: int, most: int) -> Reservation:
        """Reserve as many tokens as are left, at most `most`. Raises RateLimitError when fewer than `least` are.

        Raises InvalidRequestError for a request that the limits have no room for at any time.
        """
        ceiling = min((n for n in (limits.tokens_per_minute, limits.tokens_per_day) if n is not None), default=None)
        if ceiling is not None and least > ceiling:
            raise InvalidRequestError(
                f"this request needs at least {least} tokens, and its API key has {ceiling}; shorten the prompt",
                code="request_too_large",
            )
        with self._transaction():
            _, used = self._used(key)
            level = self._level(key, "tokens", limits.tokens_per_minute)
            day_left = most if limits.tokens_per_day is None else limits.tokens_per_day - used
            if day_left < least:
                assert limits.tokens_per_day is not None
                raise self._day_over("tokens", limits.tokens_per_day)
            if level < least:
                assert limits.tokens_per_minute is not None
                raise _minute_over("tokens", limits.tokens_per_minute, least - level)
            granted = min(most, day_left, most if math.isinf(level) else int(level))
            day = self._day()
            self._charge(key, day, tokens=granted)
            self._set_level(key, "tokens", limits.tokens_per_minute, level - granted)
            row = self._db.execute(
                "INSERT INTO reservation (key, day, tokens, at_s) VALUES (?, ?, ?, ?)", (key, day, granted, self._clock())
            )
            assert row.lastrowid is not None
            return Reservation(row.lastrowid, granted)

    def settle(self, reservation: Reservation, used: int) -> None:
        """Give back what was not used. A second time does nothing."""
        with self._transaction():
            row = self._db.execute(
                "DELETE FROM reservation WHERE id = ? RETURNING key, day, tokens", (reservation.id,)
            ).fetchone()
            if row is None:
                return
            key, day, reserved = row
            rest = max(0, reserved - used)
            self._db.execute("UPDATE use SET tokens = tokens - ? WHERE key = ? AND day = ?", (rest, key, day))
            self._db.execute("UPDATE bucket SET level = level + ? WHERE key = ? AND kind = 'tokens'", (rest, key))

    def remaining(self, key: str, limits: KeyLimits) -> dict[str, Remaining]:
        """ "requests" and "tokens" -> the limit of the key that is nearer to its end; without one it is left out."""
        found: dict[str, Remaining] = {}
        used = dict(zip(("requests", "tokens"), self._used(key), strict=True))
        until_s = self._until_midnight_s()
        for kind in used:
            minute, day = getattr(limits, f"{kind}_per_minute"), getattr(limits, f"{kind}_per_day")
            choices = []
            if minute is not None:
                level = max(0.0, self._level(key, kind, minute))
                choices.append(Remaining(minute, int(level), (minute - level) * 60 / minute))
            if day is not None:
                choices.append(Remaining(day, max(0, day - used[kind]), until_s))
            if choices:
                found[kind] = min(choices, key=lambda choice: choice.left)
        return found

    def use_today(self, key: str) -> tuple[int, int]:
        """(requests, tokens) of this day in UTC, reservations included."""
        return self._used(key)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing. Raises BusyError when the file cannot be written: what cannot be counted is not given."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise BusyError(f"the use of this API key cannot be recorded now ({error}); try again later") from error

    def _used(self, key: str) -> tuple[int, int]:
        row: Any = self._db.execute("SELECT requests, tokens FROM use WHERE key = ? AND day = ?", (key, self._day())).fetchone()
        return (0, 0) if row is None else (int(row[0]), int(row[1]))

    def _charge(self, key: str, day: int, *, requests: int = 0, tokens: int = 0) -> None:
        self._db.execute(
            "INSERT INTO use (key, day, requests, tokens) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (key, day) DO UPDATE SET requests = requests + excluded.requests, tokens = tokens + excluded.tokens",
            (key, day, requests, tokens),
        )

    def _level(self, key: str, kind: str, per_minute: int | None) -> float:
        """What is in the bucket now; infinity without a limit."""
        if per_minute is None:
            return math.inf
        row = self._db.execute("SELECT level, at_s FROM bucket WHERE key = ? AND kind = ?", (key, kind)).fetchone()
        if row is None:
            return float(per_minute)
        level, at_s = row
        gained = max(0.0, self._clock() - at_s) * per_minute / 60  # a clock set back fills nothing
        return float(min(per_minute, level + gained))

    def _set_level(self, key: str, kind: str, per_minute: int | None, level: float) -> None:
        if per_minute is not None:
            self._db.execute(
                "INSERT OR REPLACE INTO bucket (key, kind, level, at_s) VALUES (?, ?, ?, ?)", (key, kind, level, self._clock())
            )

    def _day(self) -> int:
        return int(self._clock() // DAY_S)

    def _until_midnight_s(self) -> float:
        return DAY_S - self._clock() % DAY_S

    def _day_over(self, kind: str, limit: int) -> RateLimitError:
        return RateLimitError(
            f"this API key has used its {limit} {kind} of today; the next day begins at midnight UTC",
            retry_after_s=self._until_midnight_s(),
        )


def open_usage(config: ServerConfig) -> UsageStore | None:
    """The store of a server: of --usage-db, or beside the file of --api-keys; None without keys. Raises ConfigError."""
    if config.api_keys is None:
        if config.usage_db is not None:
            raise ConfigError("--usage-db holds the use of the keys of --api-keys; give both", param="usage_db")
        return None
    return UsageStore(Path(config.usage_db or f"{config.api_keys}.usage.sqlite3"))


def _minute_over(kind: str, per_minute: int, missing: float) -> RateLimitError:
    wait_s = missing * 60 / per_minute
    return RateLimitError(
        f"this API key may use {per_minute} {kind} per minute; try again in {math.ceil(wait_s)} s", retry_after_s=wait_s
    )
