"""The scheduler step by step: budgets, cache hits, preemption, ends, aborts and faults."""

from __future__ import annotations

import pytest
from tests.unit.scheduler.checking_worker import Rig, make_sequence

from octavo.config.resolved import ResolvedSchedulerConfig
from octavo.errors import ConfigError, ContextLengthError, InvalidRequestError
from octavo.kvcache.manager import KVCacheManager
from octavo.sampling_params import SamplingParams
from octavo.scheduler.budget import EXTRA_LOGIT_ROWS
from octavo.scheduler.policies.fcfs import FirstComeFirstServed
from octavo.scheduler.scheduler import Scheduler
from octavo.sequence import FinishReason, Sequence, SequenceState
from octavo.step import SampledTokens, StepResult

ENDLESS = frozenset[int]()


def prompt_of(seq_id: int, length: int) -> list[int]:
    """A prompt that shares no beginning with another one's."""
    return [1000 * seq_id + position for position in range(length)]


def endless(seq_id: int, length: int, max_tokens: int = 8, **fields: object) -> Sequence:
    return make_sequence(seq_id, prompt_of(seq_id, length), max_tokens, stop_token_ids=ENDLESS, **fields)


def shares(rig: Rig) -> list[tuple[int, int, int]]:
    """(seq_id, first position, tokens) of the next step, which is then run."""
    plan = rig.schedule()
    rig.settle(plan)
    return [(share.seq_id, share.num_computed, share.num_new) for share in plan.sequences]


def test_an_idle_scheduler_has_nothing_to_do() -> None:
    rig = Rig()
    assert not rig.scheduler.has_work() and rig.scheduler.schedule(0.0) is None


def test_decodes_come_first_then_the_running_prefill_then_new_ones() -> None:
    rig = Rig(max_num_batched_tokens=32, chunked_prefill_size=20)
    rig.add(endless(1, 4))
    assert shares(rig) == [(1, 0, 4)]
    rig.add(endless(2, 30), endless(3, 30))
    assert shares(rig) == [(1, 4, 1), (2, 0, 20), (3, 0, 11)]
    assert shares(rig) == [(1, 5, 1), (2, 20, 10), (3, 11, 19)]
    rig.finish()


def test_only_a_share_that_reaches_the_last_token_is_sampled() -> None:
    rig = Rig(chunked_prefill_size=8)
    rig.add(endless(1, 20, max_tokens=2))
    flags = []
    while rig.scheduler.has_work():
        plan = rig.schedule()
        flags.append([share.needs_sample for share in plan.sequences])
        rig.settle(plan)
    assert flags == [[False], [False], [True], [True]]


def test_token_ids_travel_to_the_worker_once() -> None:
    rig = Rig()
    rig.add(endless(1, 20))
    rig.finish()
    news = [share.new for plan in rig.plans for share in plan.sequences]
    assert news[0] is not None and news[0].token_ids == prompt_of(1, 20)
    assert not any(news[1:])


def test_no_more_than_max_num_seqs_run_and_the_others_wait_their_turn() -> None:
    rig = Rig(max_num_seqs=2)
    rig.add(*[endless(i, 3, max_tokens=2) for i in (1, 2, 3)])
    assert shares(rig) == [(1, 0, 3), (2, 0, 3)]
    assert (rig.scheduler.num_running, rig.scheduler.num_waiting) == (2, 1)
    rig.finish()


def test_no_more_sequences_run_than_a_step_has_tokens() -> None:
    rig = Rig(max_num_seqs=8, max_num_batched_tokens=3)
    rig.add(*[endless(i, 2, max_tokens=5) for i in range(1, 7)])
    rig.finish()
    assert max(len(plan.sequences) for plan in rig.plans) == 3


def test_a_finished_sequence_is_reported_once_and_forgotten_by_the_worker() -> None:
    rig = Rig()
    rig.add(endless(1, 3, max_tokens=1), endless(2, 3, max_tokens=2))
    updates = {update.seq_id: update for update in rig.step()}
    assert updates[1].finish_reason is FinishReason.LENGTH and updates[2].finish_reason is None
    assert rig.schedule().removed == [1]


def test_a_repeated_prompt_is_found_in_the_cache_and_only_its_end_is_computed() -> None:
    rig = Rig(block_size=8)
    rig.add(make_sequence(1, range(20)))
    rig.finish()
    computed = rig.worker.num_computed_tokens
    again = make_sequence(2, range(20))
    rig.add(again)
    assert shares(rig) == [(2, 16, 4)]
    assert again.num_cached_prompt == 16 and rig.worker.num_computed_tokens == computed + 4
    assert rig.manager.stats().hit_tokens == 16


def test_a_fully_cached_prompt_recomputes_its_last_token_in_a_copy_of_the_last_block() -> None:
    rig = Rig(block_size=8)
    rig.add(make_sequence(1, range(16)))
    rig.finish()
    again = make_sequence(2, range(16))
    rig.add(again)
    plan = rig.schedule()
    share = plan.sequences[0]
    assert (share.num_computed, share.num_new, share.needs_sample) == (15, 1, True)
    (source, target), (index, replacement) = plan.block_copies[0], share.replaced_blocks[0]
    assert (index, replacement) == (1, target) and share.new_block_ids == [share.new_block_ids[0], target] and source != target
    assert again.num_cached_prompt == 15
    rig.settle(plan)
    rig.finish()


def test_two_equal_prompts_in_one_step_are_both_computed_and_equal() -> None:
    rig = Rig()
    rig.add(make_sequence(1, range(20)), make_sequence(2, range(20)))
    rig.finish()
    first, second = ([t for u in rig.updates if u.seq_id == i for t in u.new_token_ids] for i in (1, 2))
    assert first == second


def test_prompt_logprobs_read_nothing_from_the_cache_but_fill_it() -> None:
    rig = Rig(num_blocks=64, max_num_batched_tokens=512, chunked_prefill_size=256)
    rig.add(make_sequence(1, range(100)))
    rig.finish()
    wanting = make_sequence(2, range(100), sampling=SamplingParams(prompt_logprobs=1))
    rig.add(wanting)
    assert shares(rig) == [(2, 0, EXTRA_LOGIT_ROWS)]
    rig.finish()
    assert wanting.num_cached_prompt == 0
    entries = [e.token_id for u in rig.updates if u.seq_id == 2 and u.prompt_logprobs for e in u.prompt_logprobs.entries]
    assert entries == list(range(1, 100))


def test_prompts_with_logprobs_share_one_bound_while_others_pass() -> None:
    rig = Rig(max_num_batched_tokens=512, chunked_prefill_size=256)
    sampling = SamplingParams(prompt_logprobs=0)
    rig.add(*[endless(i, 60, sampling=sampling) for i in (1, 2, 3)], endless(4, 60))
    assert shares(rig) == [(1, 0, 60), (2, 0, 4), (4, 0, 60)]
    rig.finish()


def test_the_latest_arrival_is_preempted_and_told_to_the_worker_again() -> None:
    rig = Rig(num_blocks=6, block_size=8)
    one, two = endless(1, 22, max_tokens=20), endless(2, 14, max_tokens=20)
    rig.add(one, two)
    while two.state is not SequenceState.PREEMPTED:
        rig.step()
    assert one.num_preemptions == 0 and two.num_computed == 0
    assert 2 in rig.plans[-1].removed and all(share.seq_id != 2 for share in rig.plans[-1].sequences)
    generated = list(two.output_token_ids)
    rig.finish()
    told = [share.new for plan in rig.plans for share in plan.sequences if share.seq_id == 2 and share.new is not None]
    assert len(told) == 2 and told[1].token_ids == prompt_of(2, 14) + generated and told[1].num_prompt == 14
    assert len(two.output_token_ids) == 20 and two.num_cached_prompt == 0


def test_a_preempted_sequence_finds_its_own_blocks_while_they_are_unused() -> None:
    rig = Rig(num_blocks=8, block_size=8)
    one = endless(1, 30)
    rig.add(one)
    rig.step()
    rig.scheduler.fail([], "the step was interrupted")
    rig.schedule()
    assert rig.scheduler.fail([], "the step was interrupted") == [] and one.state is SequenceState.PREEMPTED
    plan = rig.schedule()
    assert (plan.sequences[0].num_computed, plan.sequences[0].num_new) == (24, 7)


def test_a_waiting_sequence_is_not_admitted_into_blocks_the_running_ones_need_next() -> None:
    rig = Rig(num_blocks=4, block_size=8)
    rig.add(endless(1, 15, max_tokens=3))
    rig.step()
    rig.add(endless(2, 8, max_tokens=2))
    rig.step()
    # 2 of 4 blocks are free: one is for token 17 of the first, and the second needs two until its first token is out.
    assert rig.scheduler.num_waiting == 1
    rig.finish()
    assert rig.scheduler.num_preemptions == 0


def test_nobody_overtakes_a_sequence_that_does_not_fit_yet() -> None:
    rig = Rig(num_blocks=6, block_size=8)
    rig.add(endless(1, 20, max_tokens=3), endless(2, 30, max_tokens=3), endless(3, 3, max_tokens=3))
    rig.step()
    assert rig.scheduler.num_running == 1
    rig.finish()
    admitted = [share.seq_id for plan in rig.plans for share in plan.sequences if share.new is not None]
    assert admitted == [1, 2, 3]


def test_abort_works_waiting_running_and_in_flight_and_only_once() -> None:
    rig = Rig(max_num_seqs=2)
    rig.add(*[endless(i, 10) for i in (1, 2, 3)])
    rig.step()
    assert rig.scheduler.abort(3) and not rig.scheduler.abort(3) and not rig.scheduler.abort(99)
    assert rig.scheduler.abort(1)
    plan = rig.schedule()
    used = rig.manager.num_blocks - rig.manager.num_free
    assert plan.removed == [1] and rig.scheduler.abort(2)
    assert rig.manager.num_blocks - rig.manager.num_free == used, "blocks of a step in flight are not freed"
    assert rig.settle(plan) == []
    assert rig.manager.num_free == rig.manager.num_blocks and not rig.scheduler.has_work()


def test_a_sequence_ended_for_a_stop_string_keeps_that_reason() -> None:
    rig = Rig()
    sequence = endless(1, 10)
    rig.add(sequence)
    rig.step()
    assert rig.scheduler.abort(1, FinishReason.STOP)
    assert sequence.finish_reason is FinishReason.STOP


def test_a_sequence_that_fails_in_a_step_leaves_its_neighbours_alone() -> None:
    rig = Rig()
    rig.add(endless(1, 10), endless(2, 10))
    updates = {update.seq_id: update for update in rig.settle(rig.schedule(), failed=[1])}
    assert (updates[1].finish_reason, updates[1].error, updates[1].new_token_ids) == (FinishReason.ERROR, "made to fail", [])
    assert updates[2].finish_reason is None and len(updates[2].new_token_ids) == 1
    rig.finish()


@pytest.mark.parametrize("token_id", [None, -1, 2**32])
def test_a_missing_or_impossible_token_ends_that_sequence_only(token_id: int | None) -> None:
    rig = Rig()
    rig.add(endless(1, 10), endless(2, 10))
    plan = rig.schedule()
    sampled = [SampledTokens(2, [5])] + ([] if token_id is None else [SampledTokens(1, [token_id])])
    updates = {update.seq_id: update for update in rig.scheduler.settle(plan, StepResult(plan.step_id, sampled), 1.0)}
    assert updates[1].finish_reason is FinishReason.ERROR and "the worker returned" in (updates[1].error or "")
    assert updates[2].new_token_ids == [5]
    rig.scheduler.check_integrity()


def test_after_a_step_that_raised_the_named_end_and_the_others_are_computed_again() -> None:
    rig = Rig(block_size=8)
    one, two = endless(1, 10), endless(2, 10)
    rig.add(one, two)
    rig.step()
    rig.schedule()
    updates = rig.scheduler.fail([1, 1, 99], "boom")
    assert [(u.seq_id, u.finish_reason, u.error) for u in updates] == [(1, FinishReason.ERROR, "boom")]
    rig.scheduler.check_integrity()
    assert two.state is SequenceState.PREEMPTED
    plan = rig.schedule()
    assert set(plan.removed) == {1, 2} and plan.sequences[0].new is not None
    rig.settle(plan)
    rig.finish()
    assert len(two.output_token_ids) == 8


def test_a_sequence_that_fits_no_pool_ends_with_an_error_and_the_engine_goes_on() -> None:
    rig = Rig(num_blocks=2, block_size=8)
    lone = endless(1, 10, max_tokens=30)
    rig.scheduler.max_model_len = 64  # what the constructor refuses: a sequence may outgrow the pool
    rig.add(lone)
    rig.finish()
    assert lone.finish_reason is FinishReason.ERROR and rig.updates[-1].error is not None
    assert len(lone.output_token_ids) == 7
    rig.add(endless(2, 5, max_tokens=2))
    rig.finish()


def test_max_model_len_beyond_the_pool_is_refused_at_construction() -> None:
    with pytest.raises(ConfigError, match="max_model_len is 65 tokens, but the KV cache holds 64") as caught:
        Scheduler(ResolvedSchedulerConfig(max_model_len=65), KVCacheManager(8, 8), FirstComeFirstServed())
    assert caught.value.param == "max_model_len"


def test_a_sequence_that_could_never_run_is_refused() -> None:
    rig = Rig(max_model_len=16)
    for prompt, error in (([], InvalidRequestError), (range(16), ContextLengthError), ([-1], InvalidRequestError)):
        with pytest.raises(error):
            rig.scheduler.add(make_sequence(1, prompt))
    assert not rig.scheduler.has_work()


def test_times_are_taken_from_the_caller() -> None:
    rig = Rig()
    sequence = endless(1, 5)
    rig.add(sequence)
    plan = rig.scheduler.schedule(12.5)
    assert plan is not None
    rig.scheduler.settle(plan, rig.worker.run(plan), 13.0)
    assert sequence.first_scheduled_s == 12.5
