"""What keys have used: reserved before, settled after, kept over restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.config.server import ServerConfig
from octavo.errors import ConfigError, InvalidRequestError, RateLimitError
from octavo.server.access.limits import KeyLimits
from octavo.server.access.usage import DAY_S, UsageStore, open_usage

DAY = KeyLimits(tokens_per_day=100, requests_per_day=2)
MINUTE = KeyLimits(tokens_per_minute=60, requests_per_minute=2)


class Clock:
    now = 20_000.25 * DAY_S

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[UsageStore]:
    opened = UsageStore(tmp_path / "usage", clock)
    yield opened
    opened.close()


def test_what_was_not_used_comes_back_once(store: UsageStore) -> None:
    first = store.reserve("k", DAY, 10, 70)
    assert first.tokens == 70 and store.use_today("k") == (0, 70)
    rest = store.reserve("k", DAY, 10, 70)
    assert rest.tokens == 30
    with pytest.raises(RateLimitError, match="midnight UTC") as refused:
        store.reserve("k", DAY, 1, 1)
    assert refused.value.retry_after_s == 0.75 * DAY_S
    for _ in range(2):
        store.settle(first, 20)
    assert store.use_today("k") == (0, 50)
    assert store.reserve("other", DAY, 100, 100).tokens == 100


def test_a_killed_process_has_charged_what_it_reserved(store: UsageStore, tmp_path: Path, clock: Clock) -> None:
    open_one = store.reserve("k", DAY, 10, 70)
    settled = store.reserve("k", DAY, 10, 20)
    store.settle(settled, 15)
    again = UsageStore(tmp_path / "usage", clock)  # the first one was never closed
    assert again.use_today("k") == (0, 85)
    assert again.reserve("k", DAY, 1, 100).tokens == 15
    again.settle(open_one, 30)
    assert again.use_today("k") == (0, 60)
    again.close()


def test_a_new_day_begins_at_midnight(store: UsageStore, clock: Clock) -> None:
    late = store.reserve("k", DAY, 100, 100)
    store.take_request("k", DAY)
    clock.now += 0.75 * DAY_S
    assert store.reserve("k", DAY, 100, 100).tokens == 100
    store.settle(late, 1)  # counts for the day on which it was reserved
    assert store.use_today("k") == (0, 100)


def test_a_bucket_fills_with_time_and_no_further(store: UsageStore, clock: Clock) -> None:
    assert store.reserve("k", MINUTE, 1, 100).tokens == 60
    with pytest.raises(RateLimitError) as refused:
        store.reserve("k", MINUTE, 10, 100)
    assert refused.value.retry_after_s == pytest.approx(10)
    clock.now += 10
    assert store.reserve("k", MINUTE, 10, 100).tokens == 10
    clock.now -= 3600
    with pytest.raises(RateLimitError):
        store.reserve("k", MINUTE, 1, 1)
    clock.now += 7200
    assert store.remaining("k", MINUTE)["tokens"].left == 60


def test_requests_are_limited_by_minute_and_day(store: UsageStore, clock: Clock) -> None:
    for limits in (DAY, MINUTE):
        for _ in range(2):
            store.take_request(str(limits), limits)
        with pytest.raises(RateLimitError):
            store.take_request(str(limits), limits)
        left = store.remaining(str(limits), limits)["requests"]
        assert (left.limit, left.left) == (2, 0)
    clock.now += 30
    store.take_request(str(MINUTE), MINUTE)
    assert store.use_today(str(MINUTE)) == (3, 0)


def test_of_two_limits_the_nearer_one_is_told(store: UsageStore) -> None:
    limits = KeyLimits(tokens_per_minute=60, tokens_per_day=100)
    store.reserve("k", limits, 1, 50)
    left = store.remaining("k", limits)["tokens"]
    assert (left.limit, left.left) == (60, 10) and left.reset_s == pytest.approx(50)
    assert store.remaining("k", KeyLimits()) == {}


def test_what_can_never_be_is_no_matter_of_waiting(store: UsageStore) -> None:
    with pytest.raises(InvalidRequestError, match="needs at least 101 tokens"):
        store.reserve("k", DAY, 101, 200)


def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database at all, " * 100)
    for path in (tmp_path / "none" / "usage", tmp_path / "text", tmp_path):
        with pytest.raises(ConfigError, match="--usage-db"):
            UsageStore(path)
    with pytest.raises(ConfigError, match="give both"):
        open_usage(ServerConfig(usage_db="x"))
