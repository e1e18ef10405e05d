"""Windows cover a text, and every token is scored once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.quantize.windows import Window, cut_windows

BOS = -1


@given(st.integers(0, 60), st.integers(2, 12), st.data(), st.booleans())
def test_every_token_is_scored_once_and_with_the_context_promised(
    length: int, context: int, data: st.DataObject, with_bos: bool
) -> None:
    prefix = [BOS] if with_bos else []
    stride = data.draw(st.integers(1, context - 1))
    text = list(range(length))
    windows = cut_windows(text, context, stride, prefix)
    scored = [token for window in windows for token in window.token_ids[window.first_scored :]]
    assert scored == text[0 if with_bos else 1 :]
    for index, window in enumerate(windows):
        assert len(window.token_ids) <= context
        assert window.token_ids[: len(prefix)] == prefix
        assert window.first_scored >= 1
        if index:
            assert window.first_scored >= context - stride


def test_a_text_that_fits_is_one_window() -> None:
    assert cut_windows([5, 6, 7], 8, 4, [BOS]) == [Window([BOS, 5, 6, 7], 1)]
    assert cut_windows([5, 6, 7], 8, 4) == [Window([5, 6, 7], 1)]


@pytest.mark.parametrize("text", [[], [5]])
def test_without_bos_a_single_token_has_nothing_to_score(text: list[int]) -> None:
    assert cut_windows(text, 8, 4) == []
