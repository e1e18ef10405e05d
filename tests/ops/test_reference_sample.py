"""The reference sampler against its written definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo.ops.reference.sample import logprobs, philox, sample, uniform
from octavo.ops.sample_rows import SampleRows

VOCAB = 50


def rows(count: int = 1, **fields: Any) -> SampleRows:
    """Greedy rows without penalties, all on logit row 0, positions 0, 1, ...; fields override."""
    defaults: dict[str, Any] = {
        "logit_row": np.zeros(count, np.int32),
        "temperature": np.zeros(count, np.float32),
        "top_k": np.zeros(count, np.int32),
        "top_p": np.ones(count, np.float32),
        "min_p": np.zeros(count, np.float32),
        "repetition": np.ones(count, np.float32),
        "presence": np.zeros(count, np.float32),
        "frequency": np.zeros(count, np.float32),
        "seed": np.full(count, 1234, np.uint64),
        "choice": np.zeros(count, np.int32),
        "position": np.arange(count, dtype=np.int32),
        "history": np.zeros(0, np.int32),
        "history_start": np.zeros(count + 1, np.int64),
        "num_prompt": np.zeros(count, np.int32),
        "bias_ids": np.zeros(0, np.int32),
        "bias_values": np.zeros(0, np.float32),
        "bias_start": np.zeros(count + 1, np.int64),
        "top_logprobs": np.full(count, -1, np.int32),
        "mask_row": np.full(count, -1, np.int32),
        "masks": np.zeros((0, 0), np.int32),
    }
    return SampleRows(**(defaults | fields))


def drawn(logits: np.ndarray, count: int = 4000, **fields: float) -> np.ndarray:
    """Tokens of count rows at temperature 1 (fields override) over one row of logits."""
    columns = {"temperature": 1.0, **fields}
    types = {"top_k": np.int32}
    arrays = {name: np.full(count, value, types.get(name, np.float32)) for name, value in columns.items()}
    return sample(logits, rows(count, **arrays)).token_ids


@pytest.fixture
def logits() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((1, VOCAB)).astype(np.float32) * 2


def test_philox_gives_the_published_known_answers() -> None:
    """Vectors from the Random123 distribution, kat_vectors, philox4x32 10."""

    def words(*values: int) -> tuple[np.ndarray, ...]:
        return tuple(np.array([value], np.uint64) for value in values)

    def run(counter: tuple[np.ndarray, ...], key: tuple[np.ndarray, ...]) -> list[int]:
        return [int(word[0]) for word in philox(counter, key)]  # type: ignore[arg-type]

    full = 0xFFFFFFFF
    assert run(words(0, 0, 0, 0), words(0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert run(words(full, full, full, full), words(full, full)) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert run(words(0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), words(0xA4093822, 0x299F31D0)) == [
        0xD16CFE09,
        0x94FDCCEB,
        0x5001E420,
        0x24126EA1,
    ]


def test_noise_is_the_upper_53_bits_of_two_words_and_differs_by_seed_choice_and_position() -> None:
    zero = np.zeros(1, np.int32)
    seed = np.zeros(1, np.uint64)
    assert uniform(seed, zero, zero)[0] == ((0x6627E8D5 << 32 | 0xE169C58D) >> 11) * 2.0**-53
    one = np.ones(1, np.int32)
    high = np.array([1 << 32], np.uint64)
    low = np.array([1], np.uint64)
    keys = [(seed, zero, zero), (seed, zero, one), (seed, one, zero), (high, zero, zero), (low, zero, zero)]
    values = {float(uniform(*key)[0]) for key in keys}
    assert len(values) == 5


def test_noise_is_uniform() -> None:
    position = np.arange(20000, dtype=np.int32)
    u = uniform(np.full(20000, 2**64 - 1, np.uint64), np.zeros_like(position), position)
    counts = np.histogram(u, bins=20, range=(0, 1))[0]
    assert counts.sum() == 20000
    assert np.abs(counts - 1000).max() < 150


def test_greedy_takes_the_largest_logit_and_the_lowest_id_on_ties() -> None:
    values = np.array([[0.0, 3.0, 1.0, 3.0]], np.float32)
    assert sample(values, rows()).token_ids.tolist() == [1]


def test_frequencies_of_drawn_tokens_follow_softmax(logits: np.ndarray) -> None:
    expected = np.exp(logits[0]) / np.exp(logits[0]).sum()
    found = np.bincount(drawn(logits, 20000), minlength=VOCAB) / 20000
    assert np.abs(found - expected).max() < 0.012


def test_top_k_keeps_the_k_largest(logits: np.ndarray) -> None:
    kept = set(np.argsort(-logits[0])[:5].tolist())
    assert set(drawn(logits, top_k=5).tolist()) == kept


def test_top_p_keeps_the_shortest_beginning_that_reaches_p(logits: np.ndarray) -> None:
    order = np.argsort(-logits[0])
    sums = np.cumsum(np.exp(logits[0][order].astype(np.float64)))
    count = int(np.argmax(sums / sums[-1] >= 0.5)) + 1
    assert set(drawn(logits, top_p=0.5).tolist()) == set(order[:count].tolist())


def test_min_p_drops_what_is_less_likely_than_a_share_of_the_top(logits: np.ndarray) -> None:
    kept = np.flatnonzero(np.exp(logits[0] - logits[0].max()) >= 0.1)
    assert set(drawn(logits, 20000, min_p=0.1).tolist()) == set(kept.tolist())


def test_a_tiny_top_p_is_greedy(logits: np.ndarray) -> None:
    assert set(drawn(logits, top_p=1e-6).tolist()) == {int(logits[0].argmax())}


def test_minus_infinite_bias_masks_and_other_bias_is_added(logits: np.ndarray) -> None:
    best = int(logits[0].argmax())
    bias: dict[str, Any] = {"bias_ids": np.array([best, 7], np.int32), "bias_values": np.array([-np.inf, 50], np.float32)}
    assert sample(logits, rows(bias_start=np.array([0, 2]), **bias)).token_ids.tolist() == [7]
    bias = {"bias_ids": np.array([best], np.int32), "bias_values": np.array([-np.inf], np.float32)}
    second = int(np.argsort(-logits[0])[1])
    assert sample(logits, rows(bias_start=np.array([0, 1]), **bias)).token_ids.tolist() == [second]


def penalised(values: list[float], history: list[int], num_prompt: int, **fields: float) -> int:
    arrays: dict[str, Any] = {name: np.array([value], np.float32) for name, value in fields.items()}
    made = rows(
        history=np.array(history, np.int32),
        history_start=np.array([0, len(history)]),
        num_prompt=np.array([num_prompt], np.int32),
        **arrays,
    )
    return int(sample(np.array([values], np.float32), made).token_ids[0])


def test_repetition_penalty_divides_positive_logits_of_prompt_and_output() -> None:
    assert penalised([4.0, 3.0, 2.5], [0], 1, repetition=1.5) == 1
    assert penalised([4.0, 3.0, 2.5], [0, 1], 1, repetition=1.7) == 2


def test_repetition_penalty_multiplies_negative_logits() -> None:
    assert penalised([-1.0, -1.5], [0], 1, repetition=2.0) == 1


def test_presence_and_frequency_penalties_count_outputs_only() -> None:
    assert penalised([4.0, 3.0], [0, 0, 0], 3, presence=2.0, frequency=2.0) == 0
    assert penalised([4.0, 3.0], [1, 0], 1, presence=1.5) == 1
    assert penalised([4.0, 3.0], [1, 0, 0], 1, frequency=0.4) == 0
    assert penalised([4.0, 3.0], [1, 0, 0, 0], 1, frequency=0.4) == 1


def test_logprobs_are_log_softmax_of_the_raw_logits(logits: np.ndarray) -> None:
    expected = logits[0] - np.log(np.exp(logits[0].astype(np.float64)).sum())
    order = np.argsort(-logits[0], kind="stable")
    result = sample(logits, rows(top_logprobs=np.array([3], np.int32), bias_start=np.zeros(2, np.int64)))
    assert result.token_ids[0] == order[0]
    assert result.rank[0] == 1
    assert result.logprob[0] == pytest.approx(expected[order[0]], abs=1e-6)
    assert result.top_ids[0].tolist() == order[:3].tolist()
    assert result.top_values[0] == pytest.approx(expected[order[:3]], abs=1e-6)


def test_logprobs_of_given_tokens_report_their_rank(logits: np.ndarray) -> None:
    order = np.argsort(-logits[0], kind="stable")
    tokens = order[[0, 9, 49]].astype(np.int32)
    result = logprobs(logits, np.zeros(3, np.int32), tokens, 2)
    assert result.token_ids.tolist() == tokens.tolist()
    assert result.rank.tolist() == [1, 10, 50]
    assert result.top_ids.shape == (3, 2)


def test_equal_logits_rank_by_id() -> None:
    values = np.zeros((1, 4), np.float32)
    assert logprobs(values, np.zeros(4, np.int32), np.arange(4, dtype=np.int32), 0).rank.tolist() == [1, 2, 3, 4]


def test_a_row_is_sampled_alone_as_in_company_and_logits_stay(logits: np.ndarray) -> None:
    before = logits.copy()
    temperature = np.full(8, 0.8, np.float32)
    together = sample(logits, rows(8, temperature=temperature)).token_ids
    for index in range(8):
        alone = sample(logits, rows(1, temperature=temperature[:1], position=np.array([index], np.int32)))
        assert alone.token_ids[0] == together[index]
    assert np.array_equal(before, logits)
