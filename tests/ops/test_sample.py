"""sample and logprobs of the native backend against the reference backend: the same token for the same noise."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.ops.harness import ISAS, cpu, reference

from octavo.ops.arrays import F32, I32
from octavo.ops.registry import AnyBackend
from octavo.ops.sample_rows import SampleResult, SampleRows

VOCAB = 5000


def sample_rows(count: int, **changes: Any) -> SampleRows:
    """count greedy rows without extras; `changes` replace fields, scalars are repeated for every row."""
    i32, f32 = np.int32, np.float32
    rows = SampleRows(
        logit_row=np.arange(count, dtype=i32),
        temperature=np.zeros(count, f32),
        top_k=np.zeros(count, i32),
        top_p=np.ones(count, f32),
        min_p=np.zeros(count, f32),
        repetition=np.ones(count, f32),
        presence=np.zeros(count, f32),
        frequency=np.zeros(count, f32),
        seed=np.arange(count, dtype=np.uint64) + np.uint64(2**63 + 12345),
        choice=np.zeros(count, i32),
        position=np.arange(count, dtype=i32),
        history=np.zeros(0, i32),
        history_start=np.zeros(count + 1, np.int64),
        num_prompt=np.zeros(count, i32),
        bias_ids=np.zeros(0, i32),
        bias_values=np.zeros(0, f32),
        bias_start=np.zeros(count + 1, np.int64),
        top_logprobs=np.full(count, -1, i32),
        mask_row=np.full(count, -1, i32),
        masks=np.zeros((0, 0), i32),
    )
    arrays: dict[str, Any] = {
        name: np.full_like(getattr(rows, name), value) if np.isscalar(value) else value for name, value in changes.items()
    }
    return replace(rows, **arrays)


def logits(count: int, spread: float = 3.0) -> F32:
    return (np.random.default_rng(count).standard_normal((count, VOCAB)) * spread).astype(np.float32)


def both(isa: str, values: F32, rows: SampleRows) -> tuple[SampleResult, SampleResult]:
    return cpu(isa).sample(values, rows), reference().sample(values, rows)


SETTINGS: dict[str, dict[str, object]] = {
    "greedy": {},
    "temperature": {"temperature": 1.0},
    "hot": {"temperature": 5.0},
    "cold": {"temperature": 0.05},
    "top_k": {"temperature": 1.0, "top_k": 7},
    "top_k_1": {"temperature": 1.0, "top_k": 1},
    "top_p": {"temperature": 1.2, "top_p": 0.8},
    "tiny_top_p": {"temperature": 1.0, "top_p": 1e-6},
    "min_p": {"temperature": 1.0, "min_p": 0.1},
    "all": {"temperature": 0.7, "top_k": 50, "top_p": 0.95, "min_p": 0.02},
}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", SETTINGS)
def test_tokens_and_logprobs_equal_reference(isa: str, name: str) -> None:
    count = 60
    ours, plain = both(isa, logits(count), sample_rows(count, top_logprobs=5, **SETTINGS[name]))
    # A cumulative probability that lands within rounding of the noise may fall either way; once in 60 rows is already rare.
    assert (ours.token_ids != plain.token_ids).sum() <= (0 if name in ("greedy", "top_k_1", "tiny_top_p", "cold") else 1)
    np.testing.assert_array_equal(ours.top_ids[:, :5], plain.top_ids[:, :5])
    np.testing.assert_allclose(ours.top_values[:, :5], plain.top_values[:, :5], rtol=1e-5, atol=1e-5)
    same = ours.token_ids == plain.token_ids
    np.testing.assert_allclose(ours.logprob[same], plain.logprob[same], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(ours.rank[same], plain.rank[same])


@pytest.mark.parametrize("isa", ISAS)
def test_penalties_and_bias_equal_reference(isa: str) -> None:
    count, length = 30, 40
    rng = np.random.default_rng(0)
    bias = rng.uniform(-5, 5, 3 * count).astype(np.float32)
    bias[::4] = -np.inf
    rows = sample_rows(
        count,
        temperature=np.where(np.arange(count) % 2, 1.0, 0.0).astype(np.float32),
        repetition=1.3,
        presence=0.7,
        frequency=0.4,
        history=rng.integers(0, VOCAB // 50, count * length, dtype=np.int32),
        history_start=np.arange(count + 1, dtype=np.int64) * length,
        num_prompt=25,
        bias_ids=np.concatenate([rng.permutation(VOCAB)[:3] for _ in range(count)]).astype(np.int32),
        bias_values=bias,
        bias_start=np.arange(count + 1, dtype=np.int64) * 3,
        top_logprobs=0,
    )
    ours, plain = both(isa, logits(count), rows)
    assert (ours.token_ids != plain.token_ids).sum() <= 1
    np.testing.assert_array_equal(ours.token_ids[::2], plain.token_ids[::2])


@pytest.mark.parametrize("isa", ISAS)
def test_a_row_is_sampled_alike_in_any_company_and_on_any_number_of_threads(isa: str) -> None:
    values = logits(16)
    rows = sample_rows(16, temperature=1.0, top_p=0.9, top_logprobs=3)
    together = cpu(isa, threads=2).sample(values, rows)
    for row in range(16):
        alone = sample_rows(1, temperature=1.0, top_p=0.9, top_logprobs=3, seed=rows.seed[row : row + 1],
                            position=rows.position[row : row + 1], logit_row=np.array([row], np.int32))  # fmt: skip
        result = cpu(isa).sample(values, alone)
        assert result.token_ids[0] == together.token_ids[row]
        assert result.logprob[0].tobytes() == together.logprob[row].tobytes()


@pytest.mark.parametrize("isa", ISAS)
def test_seed_choice_and_position_each_change_the_noise(isa: str) -> None:
    values = np.repeat(logits(1, 0.5), 64, axis=0)
    index = np.arange(64)
    for field in ("seed", "choice", "position"):
        base: dict[str, object] = {"seed": 1, "choice": 0, "position": 0}
        base[field] = index.astype(np.uint64 if field == "seed" else np.int32)
        tokens = cpu(isa).sample(values, sample_rows(64, temperature=1.0, **base)).token_ids
        assert len(set(tokens.tolist())) > 40, field


@pytest.mark.parametrize("isa", ISAS)
def test_drawn_tokens_follow_the_distribution(isa: str) -> None:
    probabilities = np.array([0.5, 0.25, 0.125, 0.0625, 0.0625])
    values = np.full((4000, 16), -np.inf, np.float32)
    values[:, :5] = np.log(probabilities)
    tokens = cpu(isa).sample(values, sample_rows(4000, temperature=1.0)).token_ids
    observed = np.bincount(tokens, minlength=16)[:5] / 4000
    np.testing.assert_allclose(observed, probabilities, atol=0.03)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_broken_logits_never_hang_or_leave_the_vocabulary(isa: str, temperature: float) -> None:
    values = logits(5)
    values[0, :] = -np.inf
    values[1, :] = np.nan
    values[2, 7] = np.inf
    values[3, 3] = np.nan
    values[4, :] = 0
    result = cpu(isa).sample(values, sample_rows(5, temperature=temperature, top_logprobs=4))
    assert ((result.token_ids >= 0) & (result.token_ids < VOCAB)).all()
    assert result.token_ids[2] == 7
    assert result.token_ids[0] == result.token_ids[1] == 0


@pytest.mark.parametrize("isa", ISAS)
def test_given_tokens_report_the_reference_logprobs(isa: str) -> None:
    values = logits(20)
    rows, tokens = np.arange(20, dtype=np.int32), np.arange(20, dtype=np.int32) * 31
    ours, plain = cpu(isa).logprobs(values, rows, tokens, 4), reference().logprobs(values, rows, tokens, 4)
    np.testing.assert_allclose(ours.logprob, plain.logprob, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(ours.rank, plain.rank)
    np.testing.assert_array_equal(ours.top_ids, plain.top_ids)


@pytest.mark.parametrize("backend", [cpu(isa) for isa in ISAS] + [reference()], ids=[*ISAS, "reference"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("top", [-1, 0, 3])
def test_a_row_whose_chosen_logit_or_logprob_is_not_finite_is_told_from_its_neighbours(
    backend: AnyBackend, temperature: float, top: int
) -> None:
    values = logits(6)
    values[1, :] = np.nan
    values[2, :] = -np.inf
    values[3, 7] = np.inf
    values[4, 100] = -np.inf
    values[5, 100] = np.nan
    with np.errstate(invalid="ignore"):
        result = backend.sample(values, sample_rows(6, temperature=temperature, top_logprobs=top))
    assert result.is_finite.tolist() == [True, False, False, False, True, True]
    assert result.is_finite.dtype == np.bool_


@pytest.mark.parametrize("backend", [cpu(isa) for isa in ISAS] + [reference()], ids=[*ISAS, "reference"])
def test_given_tokens_without_a_finite_logit_are_told_from_their_neighbours(backend: AnyBackend) -> None:
    values = logits(5)
    values[0, :] = np.nan
    values[1, 5] = np.inf
    values[2, 5] = -np.inf
    values[3, 6] = -np.inf
    values[4, 6] = np.nan
    with np.errstate(invalid="ignore"):
        result = backend.logprobs(values, np.arange(5, dtype=np.int32), np.full(5, 5, np.int32), 2)
    assert result.is_finite.tolist() == [False, False, False, True, True]


def packed(allowed: NDArray[np.bool_]) -> I32:
    """allowed [rows, ids] as words of 32 bits."""
    padded = np.pad(allowed, ((0, 0), (0, -allowed.shape[1] % 32)))
    return np.packbits(padded, axis=1, bitorder="little").view("<i4")


def masks(seed: int = 4) -> NDArray[np.bool_]:
    """Rows of allowed tokens: some, few, all, one, none, and all of whole words or nothing of them."""
    rng = np.random.default_rng(seed)
    allowed = np.zeros((6, VOCAB), np.bool_)
    allowed[0] = rng.random(VOCAB) < 0.5
    allowed[1, rng.permutation(VOCAB)[:20]] = True
    allowed[2] = True
    allowed[3, VOCAB - 1] = True
    allowed[5] = np.repeat(rng.random(VOCAB // 32 + 1) < 0.3, 32)[:VOCAB]
    return allowed


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", SETTINGS)
def test_masked_tokens_are_gone_before_anything_else_looks(isa: str, name: str) -> None:
    """A masked row gives the tokens and logprobs of logits that are -inf where the mask forbids, bit by bit."""
    count, allowed = 24, masks()
    values = logits(count)
    mask_row = np.array([-1, 0, 1, 2, 3, 5] * 4, np.int32)
    options: dict[str, object] = {"top_logprobs": 5, "repetition": 1.2, **SETTINGS[name]}
    by_mask = sample_rows(count, mask_row=mask_row, masks=packed(allowed), **options)
    by_hand = values.copy()
    for row, mask in enumerate(mask_row):
        if mask >= 0:
            by_hand[row, ~allowed[mask]] = -np.inf
    for backend in (cpu(isa), cpu(isa, threads=2), reference()):
        masked = backend.sample(values, by_mask)
        masked = replace(masked, **{field.name: getattr(masked, field.name).copy() for field in fields(masked)})
        expected = backend.sample(by_hand, sample_rows(count, **options))
        for field in fields(masked):
            np.testing.assert_array_equal(getattr(masked, field.name), getattr(expected, field.name), field.name)
        assert all(mask < 0 or allowed[mask, token] for mask, token in zip(mask_row, masked.token_ids, strict=True))
        assert masked.is_finite.all()


@pytest.mark.parametrize("backend", [cpu(isa) for isa in ISAS] + [reference()], ids=[*ISAS, "reference"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_may_choose_nothing_is_not_finite_and_its_neighbour_is(backend: AnyBackend, temperature: float) -> None:
    values = logits(3)
    values[2, 17] = np.nan
    only_nan = np.zeros((1, VOCAB), np.bool_)
    only_nan[0, 17] = True
    words = packed(np.concatenate([masks(), only_nan]))
    rows = sample_rows(3, temperature=temperature, mask_row=np.array([4, 0, 6], np.int32), masks=words)
    assert backend.sample(values, rows).is_finite.tolist() == [False, True, False]


@pytest.mark.parametrize("backend", [cpu(isa) for isa in ISAS] + [reference()], ids=[*ISAS, "reference"])
def test_ids_beyond_the_words_of_a_mask_are_forbidden(backend: AnyBackend) -> None:
    """The grammar's vocabulary may be smaller than the model's, whose last rows are padding."""
    values = logits(2)
    values[:, 64:] += 100
    values[:, 40] = 50
    rows = sample_rows(2, mask_row=np.array([0, -1], np.int32), masks=packed(np.ones((1, 64), np.bool_)))
    tokens = backend.sample(values, rows).token_ids
    assert tokens[0] == 40 and tokens[1] >= 64


def test_a_mask_that_is_not_there_is_refused() -> None:
    for mask in (-2, 1):
        rows = sample_rows(1, mask_row=np.array([mask], np.int32), masks=packed(np.ones((1, VOCAB), np.bool_)))
        with pytest.raises(ValueError, match="mask row"):
            cpu().sample(logits(1), rows)
