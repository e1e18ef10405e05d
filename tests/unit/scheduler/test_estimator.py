"""Expected remaining time."""

from __future__ import annotations

import pytest
from tests.unit.scheduler.checking_worker import Rig, make_sequence

from octavo.scheduler.estimator import Estimator
from octavo.step import ScheduledSequence, ShareKind, StepPlan


def decode_plan(num_sequences: int, context: int) -> StepPlan:
    return StepPlan(1, [ScheduledSequence(i, ShareKind.DECODE, context, 1, [], True) for i in range(num_sequences)])


def prefill_plan(num_tokens: int) -> StepPlan:
    return StepPlan(1, [ScheduledSequence(1, ShareKind.PREFILL, 0, num_tokens, [], True)])


def mixed_plan(num_decodes: int, num_tokens: int) -> StepPlan:
    prefill = ScheduledSequence(99, ShareKind.PREFILL, 0, num_tokens, [], False)
    return StepPlan(1, [*decode_plan(num_decodes, 100).sequences, prefill])


def steps_with_decodes(estimator: Estimator, target_s: float, count: int, factor: float = 1.0) -> list[int]:
    """The budgets of steps of 4 decodes whose prompt shares fill them, on a machine that takes `factor` times as long."""
    budgets = []
    for _ in range(count):
        budgets.append(estimator.prefill_budget(target_s, decode_plan(4, 100).sequences, []))
        estimator.observe_step(mixed_plan(4, budgets[-1]), factor * (0.010 + budgets[-1] * 1e-3))
    return budgets


def taught() -> Estimator:
    """10 ms per step of decodes, 1 ms per prompt token, answers of 20 tokens."""
    estimator = Estimator()
    for round_ in range(100):
        estimator.observe_step(decode_plan(4, 100), 0.010)
        estimator.observe_step(prefill_plan(32 + round_), (32 + round_) * 1e-3)
    for _ in range(20):
        estimator.observe_end(make_sequence(1, [1], 100, output_token_ids=[7] * 20))
    return estimator


def test_remaining_time_is_prefill_and_expected_answer() -> None:
    estimator = taught()
    assert estimator.decode_step_s == pytest.approx(0.010)
    assert estimator.remaining_s(make_sequence(1, range(100), 100)) == pytest.approx(0.1 + 0.2, rel=0.1)


def test_what_is_cached_or_computed_needs_no_time() -> None:
    estimator = taught()
    assert estimator.remaining_s(make_sequence(1, range(100), 100), num_cached=99) == pytest.approx(0.2, rel=0.1)
    halfway = make_sequence(1, range(100), 100, output_token_ids=[7] * 10)
    halfway.num_computed = 109
    assert estimator.remaining_s(halfway) == pytest.approx(0.1, rel=0.1)


def test_the_prefill_share_fills_the_target_beside_the_decodes() -> None:
    estimator = taught()
    budgets = steps_with_decodes(estimator, 0.050, 6)
    assert budgets[:3] == [16, 32, pytest.approx(40, rel=0.15)], (
        "twice of what may always be taken, then what the target leaves"
    )
    assert budgets[-1] == pytest.approx(40, rel=0.15)


def test_a_machine_that_is_slower_beside_decodes_than_the_model_says_gets_smaller_shares() -> None:
    slow = taught()
    assert steps_with_decodes(slow, 0.050, 30, factor=2.0)[-1] < 25


def test_a_model_that_has_seen_no_prompt_does_not_stop_everybody_with_a_guess() -> None:
    estimator = Estimator()
    for _ in range(50):
        estimator.observe_step(decode_plan(16, 100), 0.010)
    budgets = [estimator.prefill_budget(1000.0, decode_plan(16, 100).sequences, [])]
    for _ in range(3):
        estimator.observe_step(mixed_plan(16, budgets[-1]), 0.010 + budgets[-1] * 1e-2)
        budgets.append(estimator.prefill_budget(1000.0, decode_plan(16, 100).sequences, []))
    assert budgets == [16, 32, 64, 128]


def test_prompts_go_on_slowly_when_decodes_alone_miss_the_target() -> None:
    assert taught().prefill_budget(0.001, decode_plan(4, 100).sequences, []) == 8


def test_the_scheduler_teaches_its_estimator() -> None:
    estimator = Estimator()
    rig = Rig(estimator=estimator)
    rig.add(*[make_sequence(i, range(5), 3, stop_token_ids=[], tenant="t") for i in range(12)])
    rig.finish()
    assert estimator.step_time.num_observed == len(rig.plans)
    assert estimator.output_lengths.expected(make_sequence(99, [1], 3, tenant="t")) == 3


def drafted_plan(num_sequences: int, num_drafts: int, context: int = 100) -> StepPlan:
    shares = decode_plan(num_sequences, context).sequences
    for share in shares:
        share.num_new, share.draft_token_ids = 1 + num_drafts, [7] * num_drafts
    return StepPlan(1, shares)


def test_tokens_that_come_several_at_a_time_come_sooner() -> None:
    estimator = Estimator()
    for _ in range(200):
        estimator.observe_step(drafted_plan(2, 4), 0.010, num_accepted=6)
    assert estimator.decode_step_s == pytest.approx(0.010 * 2 / 8)


def test_beside_drafts_there_is_less_time_for_prompts() -> None:
    estimator = Estimator()
    for round_ in range(200):
        rows = 1 + round_ % 8
        estimator.observe_step(decode_plan(rows, 0), 0.005 + 0.002 * rows)
        estimator.observe_step(mixed_plan(0, 32 + round_ % 7), 0.005 + (32 + round_ % 7) * 1e-3)
    plain = estimator.prefill_budget(0.060, decode_plan(4, 0).sequences, [])
    drafted = estimator.prefill_budget(0.060, drafted_plan(4, 3, 0).sequences, [])
    assert drafted <= plain
