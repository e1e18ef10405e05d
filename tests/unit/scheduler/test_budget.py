"""The step's budgets."""

from __future__ import annotations

import pytest
from tests.unit.scheduler.checking_worker import make_sequence

from octavo.sampling_params import SamplingParams
from octavo.scheduler.budget import EXTRA_LOGIT_ROWS, StepBudget
from octavo.step import ScheduledSequence, ShareKind

DECODE, PREFILL = ShareKind.DECODE, ShareKind.PREFILL


def prefill(num_new: int, first: int = 0) -> ScheduledSequence:
    return ScheduledSequence(1, PREFILL, first, num_new, [], False)


@pytest.mark.parametrize(
    ("tokens", "chunk", "first", "expected"), [(512, 256, 0, 100), (512, 30, 0, 30), (20, 30, 0, 20), (512, 256, 95, 5)]
)
def test_a_share_is_bounded_by_sequence_chunk_and_step(tokens: int, chunk: int, first: int, expected: int) -> None:
    assert StepBudget(tokens, chunk).share(make_sequence(1, range(100)), first, PREFILL) == expected


def test_taking_counts_down_and_refunding_counts_up() -> None:
    budget, sequence = StepBudget(50, 40), make_sequence(1, range(100))
    budget.take(sequence, prefill(40))
    assert budget.tokens == 10 and budget.share(sequence, 40, PREFILL) == 10
    budget.refund(sequence, prefill(40))
    assert budget.tokens == 50


def test_only_prefills_count_against_the_prefill_budget() -> None:
    budget, sequence = StepBudget(50, 40), make_sequence(1, range(100))
    budget.prefill_tokens = 8
    budget.take(sequence, ScheduledSequence(1, DECODE, 99, 1, [], True))
    assert budget.share(sequence, 0, PREFILL) == 8 and budget.share(sequence, 90, DECODE) == 10
    budget.take(sequence, prefill(8))
    assert budget.share(sequence, 0, PREFILL) == 0 and budget.share(sequence, 90, DECODE) == 10


def test_prompt_tokens_with_logprobs_have_a_bound_of_their_own_over_all_sequences() -> None:
    sampling = SamplingParams(prompt_logprobs=0)
    budget = StepBudget(512, 256)
    one, two = (make_sequence(i, range(50), sampling=sampling) for i in (1, 2))
    assert budget.share(make_sequence(3, range(300), sampling=sampling), 0, PREFILL) == EXTRA_LOGIT_ROWS
    budget.take(one, prefill(budget.share(one, 0, PREFILL)))
    assert budget.share(two, 0, PREFILL) == EXTRA_LOGIT_ROWS - 50
    budget.take(two, prefill(14))
    assert budget.share(two, 14, PREFILL) == 0 and budget.share(make_sequence(4, range(50)), 0, PREFILL) == 50


def test_generated_tokens_do_not_count_as_prompt_tokens_with_logprobs() -> None:
    sequence = make_sequence(1, range(10), sampling=SamplingParams(prompt_logprobs=0), output_token_ids=list(range(200)))
    budget = StepBudget(512, 256)
    assert budget.share(sequence, 0, PREFILL) == 210
    budget.take(sequence, prefill(210))
    assert budget.logit_rows == EXTRA_LOGIT_ROWS - 10


def test_drafts_are_bounded_by_step_chunk_and_half_of_the_extra_rows() -> None:
    assert StepBudget(5, 100).num_drafts(1) == 4 and StepBudget(100, 5).num_drafts(2) == 3
    budget, sequence = StepBudget(512, 256), make_sequence(1, range(10))
    assert budget.num_drafts(1) == EXTRA_LOGIT_ROWS // 2
    share = ScheduledSequence(1, DECODE, 9, 31, [], True, draft_token_ids=[7] * 30)
    budget.take(sequence, share)
    assert budget.num_drafts(1) == EXTRA_LOGIT_ROWS // 2 - 30 and budget.tokens == 512 - 31
    budget.refund(sequence, share)
    assert budget.num_drafts(1) == EXTRA_LOGIT_ROWS // 2
