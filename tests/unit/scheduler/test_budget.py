"""The step's budgets."""

from __future__ import annotations

import pytest
from tests.unit.scheduler.checking_worker import make_sequence

from octavo.sampling_params import SamplingParams
from octavo.scheduler.budget import PROMPT_LOGPROBS_TOKENS_PER_STEP, StepBudget


@pytest.mark.parametrize(
    ("tokens", "chunk", "first", "expected"), [(512, 256, 0, 100), (512, 30, 0, 30), (20, 30, 0, 20), (512, 256, 95, 5)]
)
def test_a_share_is_bounded_by_sequence_chunk_and_step(tokens: int, chunk: int, first: int, expected: int) -> None:
    assert StepBudget(tokens, chunk).share(make_sequence(1, range(100)), first) == expected


def test_taking_counts_down_and_refunding_counts_up() -> None:
    budget, sequence = StepBudget(50, 40), make_sequence(1, range(100))
    budget.take(sequence, 0, 40)
    assert budget.tokens == 10 and budget.share(sequence, 40) == 10
    budget.refund(sequence, 0, 40)
    assert budget.tokens == 50


def test_prompt_tokens_with_logprobs_have_a_bound_of_their_own_over_all_sequences() -> None:
    sampling = SamplingParams(prompt_logprobs=0)
    budget = StepBudget(512, 256)
    one, two = (make_sequence(i, range(50), sampling=sampling) for i in (1, 2))
    assert budget.share(make_sequence(3, range(300), sampling=sampling), 0) == PROMPT_LOGPROBS_TOKENS_PER_STEP
    budget.take(one, 0, budget.share(one, 0))
    assert budget.share(two, 0) == PROMPT_LOGPROBS_TOKENS_PER_STEP - 50
    budget.take(two, 0, 14)
    assert budget.share(two, 14) == 0 and budget.share(make_sequence(4, range(50)), 0) == 50


def test_generated_tokens_do_not_count_as_prompt_tokens_with_logprobs() -> None:
    sequence = make_sequence(1, range(10), sampling=SamplingParams(prompt_logprobs=0), output_token_ids=list(range(200)))
    budget = StepBudget(512, 256)
    assert budget.share(sequence, 0) == 210
    budget.take(sequence, 0, 210)
    assert budget.logprob_tokens == PROMPT_LOGPROBS_TOKENS_PER_STEP - 10
