"""When a request is turned away, and for how long."""

from __future__ import annotations

import pytest

from octavo.config.scheduler import SchedulerConfig
from octavo.engine.frontend.ledger import Ledger, RequestRecord, ShedReason
from octavo.engine.frontend.overload import DEFAULT_RETRY_AFTER_S, MAX_RETRY_AFTER_S, check_queue
from octavo.errors import OverloadedError
from octavo.sequence import FinishReason


def ledger_with(num_queued: int, num_prompt_tokens: int = 100) -> Ledger:
    ledger = Ledger()
    for index in range(num_queued):
        ledger.open(RequestRecord(f"q{index}", num_prompt_tokens, 1, 5, arrival_s=0.0))
    return ledger


def drained(ledger: Ledger, times_s: list[float]) -> Ledger:
    for index, at_s in enumerate(times_s):
        ledger.open(RequestRecord(f"d{index}", 1, 1, 5, arrival_s=0.0))
        ledger.started(f"d{index}", at_s)
        ledger.close(f"d{index}", FinishReason.STOP, at_s)
    return ledger


def refused(ledger: Ledger, num_prompt_tokens: int, num_choices: int = 1, **config: int) -> OverloadedError:
    with pytest.raises(OverloadedError) as caught:
        check_queue(ledger, SchedulerConfig(**config), "acme", num_prompt_tokens, num_choices, 10.0)  # type: ignore[arg-type]
    return caught.value


def test_the_queue_is_full_at_its_limit_beyond_the_seats() -> None:
    check_queue(ledger_with(3), SchedulerConfig(max_num_seqs=2, max_num_queued_requests=2), "acme", 0, 1, 10.0)
    ledger = ledger_with(4)
    error = refused(ledger, 0, max_num_seqs=2, max_num_queued_requests=2)
    assert error.status == 429 and "--max-num-queued-requests" in error.message
    assert ledger.totals.shed[ShedReason.QUEUE_REQUESTS] == 1 and ledger.tenants.of("acme").shed == 1


def test_tokens_are_limited_only_while_somebody_waits() -> None:
    config = {"max_num_seqs": 1, "max_num_queued_tokens": 250}
    check_queue(ledger_with(0), SchedulerConfig(**config), "acme", 9000, 1, 10.0)  # type: ignore[arg-type]
    check_queue(ledger_with(2), SchedulerConfig(**config), "acme", 50, 1, 10.0)  # type: ignore[arg-type]
    ledger = ledger_with(2)
    assert "--max-num-queued-tokens" in refused(ledger, 51, **config).message
    assert ledger.totals.shed[ShedReason.QUEUE_TOKENS] == 1


@pytest.mark.parametrize(
    ("times_s", "expected"),
    [([], DEFAULT_RETRY_AFTER_S), ([9.0, 9.5], 2.0), ([5.0], 20.0), ([-45.0], MAX_RETRY_AFTER_S)],
)
def test_the_advice_is_the_time_the_queue_takes_at_the_measured_rate(times_s: list[float], expected: float) -> None:
    ledger = drained(ledger_with(5), times_s)
    error = refused(ledger, 0, max_num_seqs=1, max_num_queued_requests=4)
    assert error.retry_after_s == pytest.approx(expected)


@pytest.mark.parametrize(("num_waiting", "num_choices"), [(1, 4), (3, 2), (4, 1)])
def test_each_choice_takes_a_place_in_the_queue(num_waiting: int, num_choices: int) -> None:
    config = {"max_num_seqs": 2, "max_num_queued_requests": 4}
    ledger = ledger_with(0)
    ledger.open(RequestRecord("many", 10, 2 + num_waiting, 5, arrival_s=0.0))
    assert ledger.num_waiting(2) == num_waiting
    check_queue(ledger, SchedulerConfig(**config), "acme", 0, 4 - num_waiting, 10.0)  # type: ignore[arg-type]
    assert f"this request has {num_choices}" in refused(ledger, 0, num_choices, **config).message
    ledger.started("many", 1.0)
    assert ledger.num_waiting(2) == 0
    check_queue(ledger, SchedulerConfig(**config), "acme", 0, 64, 10.0)  # type: ignore[arg-type]
    ledger.close("many", FinishReason.STOP, 2.0)
    ledger.check_integrity()
