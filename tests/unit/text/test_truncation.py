"""Truncation: which tokens stay."""

from __future__ import annotations

import pytest

from octavo.errors import InvalidRequestError
from octavo.text.truncation import Truncation


@pytest.mark.parametrize(
    ("truncation", "ids", "prefix", "kept"),
    [
        (Truncation(3), [1, 2, 3, 4, 5], [], [3, 4, 5]),
        (Truncation(3), [1, 2, 3, 4, 5], [1], [1, 4, 5]),
        (Truncation(3), [1, 2, 3, 4, 5], [9], [3, 4, 5]),
        (Truncation(1), [1, 2, 3], [1], [3]),
        (Truncation(3, "right"), [1, 2, 3, 4, 5], [1], [1, 2, 3]),
        (Truncation(5), [1, 2, 3], [1], [1, 2, 3]),
        (Truncation(3), [1, 2, 3], [1], [1, 2, 3]),
    ],
)
def test_the_side_that_stays_and_a_wanted_prefix(
    truncation: Truncation, ids: list[int], prefix: list[int], kept: list[int]
) -> None:
    assert truncation.cut(ids, prefix) == kept


def test_what_is_asked_becomes_a_number_of_tokens() -> None:
    assert [Truncation.asked(-1, "left", 100, given).num_tokens for given in (None, 1, 40, 99, 5000)] == [99, 99, 60, 1, 1]
    assert Truncation.asked(100, "right", 100, 5) == Truncation(100, "right")
    for wrong in (0, -2, 101, 2**70):
        with pytest.raises(InvalidRequestError, match="it must be 1 to 100") as caught:
            Truncation.asked(wrong, "left", 100, None)
        assert caught.value.param == "truncate_prompt_tokens"
