"""Ends of sequences, and prompt logprobs that are reported once."""

from __future__ import annotations

import pytest
from tests.unit.scheduler.checking_worker import EOS, make_sequence

from octavo.sampling_params import SamplingParams
from octavo.scheduler.update import append_tokens, report_prompt_logprobs
from octavo.sequence import FinishReason
from octavo.step import PromptLogprobs, TokenLogprobs


def test_a_stop_token_ends_a_sequence_and_stays_in_its_output() -> None:
    sequence = make_sequence(1, [1, 2])
    assert append_tokens(sequence, [5], 100) is None
    assert append_tokens(sequence, [EOS], 100) is FinishReason.STOP
    assert sequence.output_token_ids == [5, EOS] and sequence.stop_token_id == EOS


def test_a_stop_token_within_min_tokens_ends_nothing() -> None:
    sequence = make_sequence(1, [1], 5, sampling=SamplingParams(max_tokens=5, min_tokens=2))
    assert [append_tokens(sequence, [EOS], 100) for _ in range(3)] == [None, None, FinishReason.STOP]


def test_max_tokens_and_max_model_len_end_a_sequence_by_length() -> None:
    assert append_tokens(make_sequence(1, [1, 2], max_tokens=1), [5], 100) is FinishReason.LENGTH
    assert append_tokens(make_sequence(1, [1, 2], max_tokens=9), [5], 3) is FinishReason.LENGTH


def test_a_stop_token_at_the_length_limit_counts_as_stop() -> None:
    assert append_tokens(make_sequence(1, [1, 2], max_tokens=1), [EOS], 100) is FinishReason.STOP


@pytest.mark.parametrize(
    ("token_ids", "max_tokens", "kept", "reason"),
    [
        ([5, EOS, 6], 9, [5, EOS], FinishReason.STOP),
        ([5, 6, 7], 2, [5, 6], FinishReason.LENGTH),
        ([5, EOS, 6], 2, [5, EOS], FinishReason.STOP),
        ([5, 6, 7], 9, [5, 6, 7], None),
    ],
)
def test_what_stands_behind_the_end_is_no_part_of_the_answer(
    token_ids: list[int], max_tokens: int, kept: list[int], reason: FinishReason | None
) -> None:
    sequence = make_sequence(1, [1, 2], max_tokens=max_tokens)
    assert append_tokens(sequence, token_ids, 100) is reason
    assert sequence.output_token_ids == kept


def entries(first: int, last: int) -> PromptLogprobs:
    return PromptLogprobs(1, first, [TokenLogprobs(position, 0.0, 1, [], []) for position in range(first, last)])


def test_prompt_logprobs_that_come_twice_are_reported_once() -> None:
    sequence = make_sequence(1, range(6), sampling=SamplingParams(prompt_logprobs=1))
    assert report_prompt_logprobs(sequence, entries(1, 4)) == entries(1, 4)
    assert report_prompt_logprobs(sequence, entries(1, 4)) is None
    assert report_prompt_logprobs(sequence, entries(2, 6)) == entries(4, 6)


def test_a_gap_in_prompt_logprobs_is_noticed() -> None:
    sequence = make_sequence(1, range(6), sampling=SamplingParams(prompt_logprobs=1))
    with pytest.raises(AssertionError, match="begin at 2, not 1"):
        report_prompt_logprobs(sequence, entries(2, 4))


def test_prompt_logprobs_missing_at_the_end_of_the_prompt_are_noticed() -> None:
    sequence = make_sequence(1, range(6), sampling=SamplingParams(prompt_logprobs=1))
    report_prompt_logprobs(sequence, entries(1, 4))
    sequence.num_computed = 6
    with pytest.raises(AssertionError, match="from position 4 on"):
        report_prompt_logprobs(sequence, None)
