"""CostModel: how long a step takes, as a function of what the step computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.step import ShareKind, StepPlan

F64 = NDArray[np.float64]

SMALL_BATCH = 8
"""Up to about this many tokens a step is bound by reading the weights, and a further token costs less or more than later on."""

_REWEIGHTINGS = 20


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What one step computes, in counts.

    prefill_tokens  tokens of shares of two or more positions
    prefill_pairs   (query, key) pairs of those shares: position p attends to p + 1 keys
    decode_seqs     shares of one position
    decode_context  keys those read, their own among them
    """

    prefill_tokens: int
    prefill_pairs: int
    decode_seqs: int
    decode_context: int


def pairs_of(first: int, num_new: int) -> int:
    """(query, key) pairs of positions first..first + num_new - 1."""
    return num_new * first + num_new * (num_new + 1) // 2


def load_of(plan: StepPlan) -> StepLoad:
    """Prefill tokens, (query, key) pairs, decoding sequences and keys they read, summed over the plan."""
    prefill_tokens = prefill_pairs = decode_seqs = decode_context = 0
    for share in plan.sequences:
        if share.kind is ShareKind.DECODE:
            decode_seqs += share.num_new
            decode_context += pairs_of(share.num_computed, share.num_new)
        else:
            prefill_tokens += share.num_new
            prefill_pairs += pairs_of(share.num_computed, share.num_new)
    return StepLoad(prefill_tokens, prefill_pairs, decode_seqs, decode_context)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Seconds of a step: a sum of non-negative terms, each a coefficient times a count.

    step_s            every step: launching it, reading the weights
    small_token_s     each of the first SMALL_BATCH tokens, on top of the terms below
    prefill_token_s   each prefill token
    prefill_pair_s    each (query, key) pair of prefill attention
    decode_seq_s      each decoding sequence
    context_token_s   each key a decoding sequence reads
    """

    step_s: float
    small_token_s: float
    prefill_token_s: float
    prefill_pair_s: float
    decode_seq_s: float
    context_token_s: float

    def seconds(self, prefill_tokens: int, prefill_pairs: int, decode_seqs: int, decode_context: int) -> float:
        """Duration of one step."""
        return (
            self.step_s
            + self.small_token_s * min(prefill_tokens + decode_seqs, SMALL_BATCH)
            + self.prefill_token_s * prefill_tokens
            + self.prefill_pair_s * prefill_pairs
            + self.decode_seq_s * decode_seqs
            + self.context_token_s * decode_context
        )


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted model and how well it says what was measured: relative errors of the samples (median and 90th percentile)."""

    model: CostModel
    median_error: float
    p90_error: float
    num_samples: int


def fit(loads: Sequence[StepLoad], seconds: Sequence[float]) -> Fit:
    """Non-negative least squares of the RELATIVE errors, so that a step of 5 ms counts as much as one of 500 ms.

    Reweighted towards the least sum of absolute errors, so that steps that another process interrupted count little.
    Raises ValueError for fewer than 8 samples.
    """
    if len(loads) < 8 or len(loads) != len(seconds):
        raise ValueError(f"a cost model needs at least 8 samples, each with its duration; got {len(loads)}")
    features = np.array(
        [
            (
                1.0,
                min(load.prefill_tokens + load.decode_seqs, SMALL_BATCH),
                load.prefill_tokens,
                load.prefill_pairs,
                load.decode_seqs,
                load.decode_context,
            )
            for load in loads
        ]
    )
    measured = np.asarray(seconds, dtype=np.float64)
    rows, ones = features / measured[:, None], np.ones(len(measured))
    coefficients = nonnegative_least_squares(rows, ones)
    for _ in range(_REWEIGHTINGS):
        weights = 1.0 / np.maximum(np.abs(rows @ coefficients - 1.0), 0.01) ** 0.5
        coefficients = nonnegative_least_squares(rows * weights[:, None], weights)
    errors = np.abs(rows @ coefficients - 1.0)
    model = CostModel(
        step_s=float(coefficients[0]),
        small_token_s=float(coefficients[1]),
        prefill_token_s=float(coefficients[2]),
        prefill_pair_s=float(coefficients[3]),
        decode_seq_s=float(coefficients[4]),
        context_token_s=float(coefficients[5]),
    )
    return Fit(model, float(np.median(errors)), float(np.percentile(errors, 90)), len(rows))


def nonnegative_least_squares(a: F64, b: F64) -> F64:
    """x >= 0 that minimises |a x - b|.

    Shapes: a [rows, columns], b [rows]; columns are scaled inside, so their units do not matter.
    Source: Lawson and Hanson, Solving Least Squares Problems, 1974, chapter 23 (active set).
    """
    scale = np.linalg.norm(a, axis=0)
    scale[scale == 0.0] = 1.0
    scaled = a / scale
    num_columns = a.shape[1]
    free = np.zeros(num_columns, dtype=bool)
    x = np.zeros(num_columns)
    for _ in range(3 * num_columns):
        gradient = scaled.T @ (b - scaled @ x)
        gradient[free] = -np.inf
        best = int(np.argmax(gradient))
        if free.all() or gradient[best] <= 1e-10:
            break
        free[best] = True
        while True:
            candidate = np.zeros(num_columns)
            candidate[free] = np.linalg.lstsq(scaled[:, free], b, rcond=None)[0]
            negative = free & (candidate <= 0.0)
            if not negative.any():
                x = candidate
                break
            step = float(np.min(x[negative] / (x[negative] - candidate[negative])))
            x = x + step * (candidate - x)
            free &= x > 1e-15
            x[~free] = 0.0
            if not free.any():
                break
    solution: F64 = x / scale
    return solution
