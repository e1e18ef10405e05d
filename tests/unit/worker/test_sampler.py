"""Sampler: which ids a row's logits are masked at."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.worker.sampler import _bad_word_ends


@pytest.mark.parametrize(
    ("words", "output", "ends"),
    [
        ([[7]], [], [7]),
        ([[7]], [1, 2], [7]),
        ([[1, 2]], [], []),
        ([[1, 2]], [1], [2]),
        ([[1, 2]], [2, 1], [2]),
        ([[1, 2]], [1, 3], []),
        ([[1, 1, 2]], [1], []),
        ([[1, 1, 2]], [1, 1, 1], [2]),
        ([[1, 2], [3, 1, 5], [9]], [3, 1], [2, 5, 9]),
    ],
)
def test_the_last_token_of_a_bad_word_is_masked_where_the_others_stand(
    words: list[list[int]], output: list[int], ends: list[int]
) -> None:
    assert list(_bad_word_ends(words, np.array(output, np.int32))) == ends
