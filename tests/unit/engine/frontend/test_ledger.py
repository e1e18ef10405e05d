"""Ledger: one outcome per request, counts that always equal the records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.engine.frontend.ledger import Ledger, RequestRecord, RequestState, ShedReason
from octavo.engine.frontend.tenant_service import TenantTotals
from octavo.engine.wire.messages import CoreStats
from octavo.errors import InvalidRequestError
from octavo.sequence import FinishReason


class Listener:
    def __init__(self) -> None:
        self.intervals: list[float | None] = []
        self.ended: list[str] = []

    def tokens(self, record: RequestRecord, interval_s: float | None) -> None:
        self.intervals.append(interval_s)

    def finished(self, record: RequestRecord) -> None:
        self.ended.append(record.request_id)


def record(request_id: str, num_choices: int = 1) -> RequestRecord:
    return RequestRecord(request_id, num_prompt_tokens=10, num_choices=num_choices, max_tokens=5, arrival_s=0.0)


def test_a_request_ends_exactly_once() -> None:
    listener = Listener()
    ledger = Ledger([listener])
    ledger.open(record("r"))
    first = ledger.close("r", FinishReason.STOP, 1.0)
    assert first is not None and first.outcome is FinishReason.STOP and first.state is RequestState.FINISHED
    assert ledger.close("r", FinishReason.ABORT, 2.0) is None
    assert listener.ended == ["r"] and first.outcome is FinishReason.STOP
    assert ledger.totals.finished[FinishReason.STOP] == 1 and ledger.totals.finished[FinishReason.ABORT] == 0


def test_an_id_in_use_is_refused_and_free_again_afterwards() -> None:
    ledger = Ledger()
    ledger.open(record("r"))
    with pytest.raises(InvalidRequestError, match="in use"):
        ledger.open(record("r"))
    ledger.close("r", FinishReason.STOP, 1.0)
    ledger.open(record("r"))
    assert ledger.num_live == 1


def test_times_and_tokens_are_written_down() -> None:
    listener = Listener()
    ledger = Ledger([listener])
    entry = record("r")
    ledger.open(entry)
    ledger.started("r", 1.0)
    ledger.tokens(entry, 1, 2.0)
    ledger.tokens(entry, 3, 2.5)
    assert (entry.scheduled_s, entry.first_token_s, entry.last_token_s) == (1.0, 2.0, 2.5)
    assert (ledger.totals.prompt_tokens, ledger.totals.generation_tokens) == (10, 4)
    assert listener.intervals == [None, 0.5]


def test_counters_of_the_core_survive_its_restart() -> None:
    ledger = Ledger()
    ledger.core_reported(CoreStats(num_running=2, num_used_blocks=5, num_blocks=9, prefix_hits=100, num_preemptions=3))
    ledger.core_lost()
    assert ledger.core.num_used_blocks == 0 and ledger.core.num_blocks == 9
    ledger.core_reported(CoreStats(prefix_hits=7, num_preemptions=1))
    assert (ledger.totals.prefix_hits, ledger.totals.preemptions, ledger.totals.core_restarts) == (107, 4, 1)


def test_queued_requests_wait_only_beyond_the_free_places() -> None:
    ledger = Ledger()
    for index in range(3):
        ledger.open(record(f"r{index}"))
    assert ledger.num_waiting(max_num_seqs=4) == 0
    assert ledger.num_waiting(max_num_seqs=1) == 2
    ledger.started("r0", 1.0)
    assert ledger.num_waiting(max_num_seqs=1) == 2
    ledger.core_reported(CoreStats(num_running=1, num_waiting=2))
    assert ledger.num_waiting(max_num_seqs=64) == 2, "the core itself says that they wait, for lack of blocks"


def test_drain_rate_is_that_of_the_last_minute() -> None:
    ledger = Ledger()
    assert ledger.drain_rate(0.0) == 0.0
    for index in range(10):
        ledger.open(record(f"r{index}"))
        ledger.started(f"r{index}", float(index))
        ledger.close(f"r{index}", FinishReason.STOP, float(index))
    assert ledger.drain_rate(10.0) == pytest.approx(1.0)
    assert ledger.drain_rate(1000.0) == 0.0


def test_requests_that_end_in_the_queue_do_not_count_as_drained() -> None:
    ledger = Ledger()
    ledger.open(record("r"))
    ledger.close("r", FinishReason.SHED, 1.0)
    assert ledger.drain_rate(2.0) == 0.0
    assert ledger.totals.shed[ShedReason.QUEUE_TIMEOUT] == 1 and ledger.tenants.of("default").shed == 1


def test_queued_tokens_are_those_of_requests_that_no_step_has_touched() -> None:
    ledger = Ledger()
    for name in "abc":
        ledger.open(record(name))
    ledger.started("a", 1.0, 7.5)
    ledger.close("b", FinishReason.ABORT, 2.0)
    entry = ledger.get("a")
    assert ledger.num_queued_tokens == 10 and entry is not None and entry.estimated_s == 7.5
    ledger.check_integrity()


def test_a_tenant_is_billed_what_was_computed_for_it() -> None:
    ledger = Ledger()
    entry = RequestRecord("r", num_prompt_tokens=10, num_choices=1, max_tokens=5, arrival_s=0.0, tenant="acme")
    ledger.open(entry)
    entry.num_cached_tokens = 4
    ledger.tokens(entry, 1, 1.0)
    ledger.tokens(entry, 2, 2.0)
    assert ledger.tenants.items() == [("acme", TenantTotals(1, 6, 4, 3, 0))]


@given(st.lists(st.tuples(st.sampled_from("osct"), st.integers(0, 3), st.sampled_from(list(FinishReason))), max_size=60))
def test_counts_equal_the_records_after_any_history(events: list[tuple[str, int, FinishReason]]) -> None:
    ledger, opened = Ledger(), 0
    for at, (kind, number, reason) in enumerate(events):
        request_id, live = f"r{number}", ledger.get(f"r{number}")
        if kind == "o" and live is None:
            ledger.open(record(request_id, num_choices=number + 1))
            opened += 1
        elif kind == "s":
            ledger.started(request_id, float(at))
        elif kind == "c":
            ledger.close(request_id, reason, float(at))
        elif live is not None:
            ledger.tokens(live, 1, float(at))
        ledger.check_integrity()
    assert sum(ledger.totals.finished.values()) == opened - ledger.num_live
