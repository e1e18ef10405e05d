"""The plan while it is being made."""

from __future__ import annotations

from tests.unit.scheduler.checking_worker import make_sequence

from octavo.kvcache.block_table import Growth
from octavo.scheduler.budget import StepBudget
from octavo.scheduler.step_builder import StepBuilder, new_sequence


def test_one_token_shares_stand_before_chunks() -> None:
    step = StepBuilder(StepBudget(100, 50))
    for seq_id, num_new in ((1, 1), (2, 5), (3, 1), (4, 2)):
        step.add(make_sequence(seq_id, range(9)), num_new, Growth(), None, [])
    assert [share.seq_id for share in step.finish(1, []).sequences] == [1, 3, 2, 4]


def test_a_withdrawn_share_leaves_no_copy_and_no_tokens_behind() -> None:
    step, sequence = StepBuilder(StepBudget(100, 50)), make_sequence(1, range(9))
    step.add(sequence, 9, Growth([3], [(0, 2)], [(1, 2)]), None, [3])
    step.add(make_sequence(2, [1]), 1, Growth([5], [(0, 6)], [(4, 6)]), None, [5])
    step.withdraw(sequence)
    step.withdraw(sequence)
    plan = step.finish(7, [1])
    assert [share.seq_id for share in plan.sequences] == [2] and plan.block_copies == [(4, 6)]
    assert step.budget.tokens == 99 and plan.removed == [1] and plan.step_id == 7


def test_a_sample_is_needed_when_the_share_reaches_the_last_known_token() -> None:
    step = StepBuilder(StepBudget(100, 50))
    step.add(make_sequence(1, range(9)), 8, Growth(), None, [])
    step.add(make_sequence(2, range(9)), 9, Growth(), None, [])
    assert [share.needs_sample for share in step.finish(1, []).sequences] == [False, True]


def test_a_preempted_sequence_is_told_again_with_its_prompt_and_output_apart() -> None:
    new = new_sequence(make_sequence(1, [5, 6], output_token_ids=[7], choice=3, stop_token_ids=frozenset({9, 2})))
    assert new.token_ids == [5, 6, 7] and new.num_prompt == 2
    assert new.choice == 3 and new.stop_token_ids == [2, 9]
