"""Perplexity and divergence against distributions that can be worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from octavo.ops.arrays import F32
from octavo.quantize.evaluate import compare, perplexity
from octavo.quantize.windows import Window


class FixedLogits:
    """Gives the same logits at every position, two positions at a time."""

    def __init__(self, *probabilities: float) -> None:
        self.logits = np.log(np.array(probabilities, np.float32)) + np.float32(3)

    def run(self, window: Window) -> Iterator[tuple[int, F32]]:
        for first in range(window.first_scored - 1, len(window.token_ids) - 1, 2):
            rows = min(2, len(window.token_ids) - 1 - first)
            yield first, np.tile(self.logits, (rows, 1))


WINDOWS = [Window([0, 0, 1, 0], 1), Window([1, 0, 0, 2], 2)]
"""Scored: 0, 1, 0, then 0, 2."""


def ignore(num_scored: int, value: float) -> None:
    pass


def test_perplexity_is_the_inverse_geometric_mean_of_the_probabilities() -> None:
    seen: list[int] = []
    result = perplexity(FixedLogits(0.5, 0.25, 0.25), WINDOWS, lambda count, value: seen.append(count))
    assert result.num_tokens == 5
    assert result.value == pytest.approx(2 ** ((3 * 1 + 2 * 2) / 5))
    assert seen == [2, 3, 5]
    assert result.standard_error > 0


def test_a_path_equal_to_its_reference_does_not_diverge() -> None:
    result, divergence = compare(FixedLogits(0.5, 0.25, 0.25), FixedLogits(0.5, 0.25, 0.25), WINDOWS, ignore)
    assert result.value == divergence.reference_value
    assert (divergence.ratio, divergence.ratio_error, divergence.equal_top, divergence.mean_kl) == (1.0, 0.0, 1.0, 0.0)


def test_divergence_is_that_of_the_distributions() -> None:
    exact, path = (0.5, 0.25, 0.25), (0.2, 0.4, 0.4)
    _, divergence = compare(FixedLogits(*path), FixedLogits(*exact), WINDOWS, ignore)
    assert divergence.mean_kl == pytest.approx(sum(p * math.log(p / q) for p, q in zip(exact, path, strict=True)), rel=1e-5)
    assert divergence.equal_top == 0.0
    assert divergence.ratio == pytest.approx((2.5**3 * 0.625**2) ** (1 / 5), rel=1e-6)


def test_one_token_has_no_known_error() -> None:
    assert math.isinf(perplexity(FixedLogits(0.5, 0.5), [Window([0, 1], 1)], ignore).standard_error)
