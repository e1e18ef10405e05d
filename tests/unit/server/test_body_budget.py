"""The bytes of bodies held at once."""

from __future__ import annotations

import pytest

from octavo.errors import OverloadedError
from octavo.server.body_budget import BODIES_IN_BUDGET, BodyBudget


def test_bytes_are_counted_refused_beyond_the_limit_and_given_back() -> None:
    budget = BodyBudget(100)
    budget.take(BODIES_IN_BUDGET * 100)
    with pytest.raises(OverloadedError):
        budget.take(1)
    assert budget.held == BODIES_IN_BUDGET * 100
    budget.give_back(BODIES_IN_BUDGET * 100)
    budget.take(1)
    assert budget.held == 1
