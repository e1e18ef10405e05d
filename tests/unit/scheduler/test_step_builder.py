"""The plan while it is being made."""

from __future__ import annotations

from tests.unit.scheduler.checking_worker import make_sequence

from octavo.kvcache.block_table import Growth
from octavo.scheduler.budget import StepBudget
from octavo.scheduler.step_builder import StepBuilder, WorkerMemory, kind_of, new_sequence
from octavo.step import ShareKind

DECODE, PREFILL = ShareKind.DECODE, ShareKind.PREFILL


def test_decodes_stand_before_prefills() -> None:
    step = StepBuilder(StepBudget(100, 50), WorkerMemory())
    for seq_id, kind in ((1, DECODE), (2, PREFILL), (3, DECODE), (4, PREFILL)):
        step.add(make_sequence(seq_id, range(9)), kind, 1, Growth(), [], [])
    assert [share.seq_id for share in step.finish(1, []).sequences] == [1, 3, 2, 4]


def test_a_withdrawn_share_leaves_no_copy_and_no_tokens_behind() -> None:
    step, sequence = StepBuilder(StepBudget(100, 50), WorkerMemory()), make_sequence(1, range(9))
    step.add(sequence, PREFILL, 9, Growth([3], [(0, 2)], [(1, 2)]), [3], [])
    step.add(make_sequence(2, [1]), DECODE, 1, Growth([5], [(0, 6)], [(4, 6)]), [5], [])
    step.withdraw(sequence)
    step.withdraw(sequence)
    plan = step.finish(7, [1])
    assert [share.seq_id for share in plan.sequences] == [2] and plan.block_copies == [(4, 6)]
    assert step.budget.tokens == 99 and plan.removed == [1] and plan.step_id == 7


def test_a_sample_is_needed_when_the_share_reaches_the_last_known_token() -> None:
    step = StepBuilder(StepBudget(100, 50), WorkerMemory())
    step.add(make_sequence(1, range(9)), PREFILL, 8, Growth(), [], [])
    step.add(make_sequence(2, range(9)), PREFILL, 9, Growth(), [], [])
    assert [share.needs_sample for share in step.finish(1, []).sequences] == [False, True]


def test_a_preempted_sequence_is_told_again_with_its_prompt_and_output_apart() -> None:
    new = new_sequence(make_sequence(1, [5, 6], output_token_ids=[7], choice=3, stop_token_ids=[9, 2]))
    assert new.token_ids == [5, 6, 7] and new.num_prompt == 2
    assert new.choice == 3 and new.stop_token_ids == [2, 9]


def test_the_worker_is_told_every_token_once_and_after_it_forgot_all_of_them() -> None:
    worker, sequence = WorkerMemory(), make_sequence(1, [5, 6])
    assert worker.tell(sequence, sequence.num_tokens) is None and worker.tell(sequence, sequence.num_tokens) == []
    sequence.output_token_ids += [7]
    assert worker.tell(sequence, sequence.num_tokens) == [7] and worker.tell(sequence, sequence.num_tokens) == []
    sequence.output_token_ids += [8, 9]
    assert worker.tell(sequence, sequence.num_tokens) == [8, 9]
    worker.forget(1)
    worker.forget(1)
    assert worker.take_removed() == [1] and worker.take_removed() == [] and worker.tell(sequence, sequence.num_tokens) is None


def test_drafts_stand_behind_the_known_tokens() -> None:
    step, sequence = StepBuilder(StepBudget(100, 50), WorkerMemory()), make_sequence(1, [5, 6], output_token_ids=[7])
    sequence.num_computed = 2
    step.add(sequence, DECODE, 1, Growth(), [], [8, 9])
    (share,) = step.finish(1, []).sequences
    assert (share.num_computed, share.num_new, share.draft_token_ids, share.needs_sample) == (2, 3, [8, 9], True)
    assert step.budget.tokens == 97


def test_a_share_is_a_decode_when_one_token_is_left_or_the_last_share_sampled() -> None:
    sequence = make_sequence(1, [5, 6, 7])
    assert (kind_of(sequence, 0), kind_of(sequence, 1), kind_of(sequence, 2)) == (PREFILL, PREFILL, DECODE)
    sequence.output_token_ids, sequence.num_computed, sequence.is_decoding = [8, 9], 3, True
    assert kind_of(sequence, 3) is DECODE, "one was sampled, one was forced"
