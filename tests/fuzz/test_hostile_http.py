"""A short slice of `make fuzz`: HTTP."""

from __future__ import annotations

from tests.fuzz.hostile_http import campaign


def test_a_hostile_request_is_answered_and_harms_nobody() -> None:
    counts, faults = campaign(0, 60)
    assert not faults, "\n".join(faults)
    assert counts["200"] and counts["400"] and sum(counts.values()) == 60
