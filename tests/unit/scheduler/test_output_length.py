"""Answer lengths per class of request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.scheduler.checking_worker import make_sequence

from octavo.scheduler.output_length import MIN_HISTORY, UNKNOWN_LENGTH, OutputLengths
from octavo.sequence import Sequence


def answered(length: int, max_tokens: int = 1000, tenant: str = "a") -> Sequence:
    return make_sequence(1, [1], max_tokens, tenant=tenant, output_token_ids=[7] * length)


def taught(*lengths: int, tenant: str = "a") -> OutputLengths:
    known = OutputLengths()
    for length in lengths:
        known.observe(answered(length, tenant=tenant))
    return known


def test_without_history_an_answer_is_expected_to_be_of_ordinary_length_or_its_limit() -> None:
    known = taught(*[10] * (MIN_HISTORY - 1))
    assert known.quantile(answered(0), 0.5) is None
    assert known.expected(answered(0)) == UNKNOWN_LENGTH and known.expected(answered(0, max_tokens=20)) == 20


def test_the_median_of_its_class_is_expected() -> None:
    known = taught(*range(10, 30))
    assert known.expected(answered(0)) == 19
    assert known.quantile(answered(0), 1.0) == 29


def test_of_an_answer_that_is_under_way_only_longer_ones_tell_anything() -> None:
    known = taught(*[10] * 20, *[100] * 5)
    assert known.expected(answered(0)) == 10
    assert known.expected(answered(10)) == 100
    assert known.expected(answered(100)) == 150, "longer than any: half as much again"


def test_a_tenant_of_its_own_is_judged_by_its_own_history() -> None:
    known = taught(*[10] * 20)
    for _ in range(MIN_HISTORY):
        known.observe(answered(500, tenant="novelist"))
    assert known.expected(answered(0, tenant="novelist")) == 500
    assert known.expected(answered(0, tenant="stranger")) == 10, "as all tenants together"
    assert known.expected(answered(0, max_tokens=4000)) == UNKNOWN_LENGTH, "another class of max_tokens"


def test_only_the_latest_answers_count() -> None:
    assert taught(*[10] * 100, *[90] * 64).expected(answered(0)) == 90


@given(st.lists(st.integers(1, 1000), max_size=150), st.integers(0, 999), st.floats(0, 1))
def test_what_is_expected_is_more_than_there_is_and_no_more_than_allowed(
    lengths: list[int], produced: int, share: float
) -> None:
    known, sequence = taught(*lengths), answered(produced)
    assert produced < known.expected(sequence) <= 1000
    length = known.quantile(sequence, share)
    assert length is None or produced < length <= 1000


@pytest.mark.parametrize("num_tenants", [5000])
def test_invented_tenants_do_not_fill_the_memory(num_tenants: int) -> None:
    known = OutputLengths()
    for number in range(num_tenants):
        known.observe(answered(5, tenant=f"t{number}"))
    assert len(known._classes) <= 4097
