"""Choosing tokens: the definition that every backend's sampler follows.

One row, in this order (logits are float32, sums of probabilities float64):
 0. mask          tokens whose bit is not set in the row's mask become -inf, before anything looks at them.
 1. logprobs      log-softmax of these raw logits; rank = 1 + number of tokens before the token in *falling order*, which is
                  larger logit first, lower id first among equals.
 2. bias          logits[bias_ids] += bias_values, entry by entry (-inf masks a token).
 3. penalties     for every distinct id of the history: a positive logit is divided by `repetition`, any other multiplied by it
                  (Keskar et al., 2019). Then for every distinct id among the outputs (history after num_prompt):
                  logit -= presence, then logit -= frequency * count.
 4. greedy        temperature 0: the first token in falling order. Done.
 5. temperature   logits /= temperature, then weight = exp(logit - largest logit).
 6. top_k         keep the first k in falling order (0 keeps all).
 7. top_p         keep the shortest beginning of them whose weights sum to at least top_p * (sum of what top_k kept).
 8. min_p         drop those whose weight is below min_p (the largest weight is 1).
 9. draw          the first token, in falling order, at which the running sum of kept weights exceeds u * (their whole sum).

A logit that is NaN counts as -inf. Where nothing is finite the token is the lowest id, and the result is not finite.

u(seed, choice, position) in [0, 1) comes from Philox4x32-10 (Salmon et al., 2011) without any state:
key = (low, high 32 bits of seed); counter = (position, choice, 0, 0); u = ((x0 << 32 | x1) >> 11) * 2**-53, where x0, x1 are
the first two of the four output words.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.ops.arrays import F32, I32
from octavo.ops.sample_rows import SampleResult, SampleRows

_WORD = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_ROUNDS = 10


def sample(logits: F32, rows: SampleRows) -> SampleResult:
    """Choose a token for each row; see the module's text. logits [num_logits, vocab_size] stay unchanged."""
    num_rows = rows.logit_row.size
    noise = uniform(rows.seed, rows.choice, rows.position)
    result = _empty_result(num_rows, int(rows.top_logprobs.max(initial=0)))
    for index in range(num_rows):
        raw = _masked(logits[rows.logit_row[index]], rows, index)
        token = _choose(_penalised(raw, rows, index), rows, index, float(noise[index]))
        result.token_ids[index] = token
        result.is_finite[index] = np.isfinite(raw[token])
        if rows.top_logprobs[index] >= 0:
            _report(raw, token, result, index)
    return result


def logprobs(logits: F32, logit_rows: I32, token_ids: I32, top: int) -> SampleResult:
    """Raw log-softmax of given tokens at given logit rows, with rank and the `top` alternatives."""
    result = _empty_result(logit_rows.size, top)
    result.token_ids[:] = token_ids
    result.is_finite[:] = np.isfinite(logits[logit_rows, token_ids])
    for index in range(logit_rows.size):
        _report(logits[logit_rows[index]], int(token_ids[index]), result, index)
    return result


def uniform(seed: NDArray[np.uint64], choice: I32, position: I32) -> NDArray[np.float64]:
    """The noise u of each row, float64 [n] in [0, 1)."""
    zero = np.zeros(seed.size, np.uint64)
    counter = (position.astype(np.uint64) & _WORD, choice.astype(np.uint64) & _WORD, zero, zero)
    words = philox(counter, (seed & _WORD, seed >> _SHIFT))
    bits = ((words[0] << _SHIFT) | words[1]) >> np.uint64(11)
    u: NDArray[np.float64] = bits.astype(np.float64) * 2.0**-53
    return u


Words = NDArray[np.uint64]


def philox(counter: tuple[Words, Words, Words, Words], key: tuple[Words, Words]) -> tuple[Words, Words, Words, Words]:
    """Philox4x32-10: four output words per counter. Words are 32-bit values held in uint64 arrays."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (product1 >> _SHIFT) ^ c1 ^ k0,
            product1 & _WORD,
            (product0 >> _SHIFT) ^ c3 ^ k1,
            product0 & _WORD,
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) & _WORD, (k1 + _KEY_STEPS[1]) & _WORD
    return c0, c1, c2, c3


def _masked(raw: F32, rows: SampleRows, index: int) -> F32:
    """Step 0 on raw [vocab]."""
    mask = rows.mask_row[index]
    if mask < 0:
        return raw
    bits = np.unpackbits(rows.masks[mask].astype("<i4").view(np.uint8), bitorder="little")[: raw.size]
    masked = np.full_like(raw, -np.inf)
    masked[: bits.size][bits == 1] = raw[: bits.size][bits == 1]
    return masked


def _penalised(raw: F32, rows: SampleRows, index: int) -> F32:
    """Steps 2 and 3 on a copy of raw [vocab]."""
    logits: F32 = np.where(np.isnan(raw), np.float32(-np.inf), raw)
    bias = slice(rows.bias_start[index], rows.bias_start[index + 1])
    np.add.at(logits, rows.bias_ids[bias], rows.bias_values[bias])
    history = rows.history[rows.history_start[index] : rows.history_start[index + 1]]
    if history.size == 0:
        return logits
    seen = np.unique(history)
    repetition = rows.repetition[index]
    logits[seen] = np.where(logits[seen] > 0, logits[seen] / repetition, logits[seen] * repetition)
    outputs, counts = np.unique(history[rows.num_prompt[index] :], return_counts=True)
    logits[outputs] -= rows.presence[index]
    logits[outputs] -= rows.frequency[index] * counts.astype(np.float32)
    return logits


def _choose(logits: F32, rows: SampleRows, index: int, u: float) -> int:
    """Steps 4 to 9 on processed logits [vocab]."""
    if rows.temperature[index] == 0 or not np.isfinite(logits.max()):
        return int(np.argmax(logits))
    scaled = logits / rows.temperature[index]
    order = np.argsort(-scaled, kind="stable")
    if rows.top_k[index] > 0:
        order = order[: rows.top_k[index]]
    weights = np.exp((scaled[order] - scaled[order[0]]).astype(np.float64))
    if rows.top_p[index] < 1:
        sums = np.cumsum(weights)
        kept = int(np.searchsorted(sums, float(rows.top_p[index]) * sums[-1], side="left")) + 1
        order, weights = order[:kept], weights[:kept]
    kept = max(1, int(np.count_nonzero(weights >= float(rows.min_p[index]))))
    sums = np.cumsum(weights[:kept])
    drawn = int(np.searchsorted(sums, u * sums[-1], side="right"))
    return int(order[min(drawn, kept - 1)])


def _report(raw: F32, token: int, result: SampleResult, index: int) -> None:
    """Step 1 for one row: logprob and rank of token, and as many alternatives as the result has columns."""
    raw = np.where(np.isnan(raw), np.float32(-np.inf), raw)
    largest = raw.max()
    total = np.log(np.exp((raw - largest).astype(np.float64)).sum())
    result.logprob[index] = float(raw[token]) - float(largest) - total
    result.is_finite[index] &= np.isfinite(result.logprob[index])
    result.rank[index] = 1 + np.count_nonzero(raw > raw[token]) + np.count_nonzero(raw[:token] == raw[token])
    top = np.argsort(-raw, kind="stable")[: result.top_ids.shape[1]]
    result.top_ids[index, : top.size] = top
    result.top_values[index, : top.size] = raw[top].astype(np.float64) - float(largest) - total


def _empty_result(num_rows: int, top: int) -> SampleResult:
    return SampleResult(
        token_ids=np.zeros(num_rows, np.int32),
        is_finite=np.zeros(num_rows, np.bool_),
        logprob=np.zeros(num_rows, np.float32),
        rank=np.zeros(num_rows, np.int32),
        top_ids=np.zeros((num_rows, top), np.int32),
        top_values=np.zeros((num_rows, top), np.float32),
    )
