"""Swap or recompute: the cheaper by what was measured, and never what failed a moment ago."""

from __future__ import annotations

import pytest
from tests.unit.scheduler.checking_worker import Rig, make_sequence

from octavo.scheduler.preemption import PAUSE_S, Preemption
from octavo.scheduler.step_time import StepShape, StepTimeModel
from octavo.sequence import Sequence, SequenceState
from octavo.step import StepPlan, SwapReport


def taught(token_s: float = 0.001, attended_s: float = 0.0) -> StepTimeModel:
    """Steps take 0.1 s, and for each prompt token and each position that it attends to what is given."""
    model = StepTimeModel()
    for num_tokens, context in ((2, 0), (100, 0), (200, 0), (64, 1000), (32, 500), (128, 2000)) * 20:
        shape = StepShape(num_tokens, 0, num_tokens * (context + 0.5 * num_tokens))
        model.observe(shape, 0.1 + token_s * shape.prefill_tokens + attended_s * shape.num_attended)
    return model


def endless(seq_id: int, length: int, **fields: object) -> Sequence:
    prompt = [seq_id * 100 + position for position in range(length)]
    return make_sequence(seq_id, prompt, 20, stop_token_ids=[], **fields)


def test_auto_takes_the_cheaper_and_learns_from_moves() -> None:
    assert not Preemption(StepTimeModel(), measured_block_s=0.01).prefers_swap(160, 16, 0.0), "no step was measured yet"
    preemption = Preemption(taught(), measured_block_s=0.01)
    assert preemption.prefers_swap(160, 16, 0.0) and not preemption.prefers_swap(160, 8, 0.0)
    slow = StepPlan(2, [], swap_out=[(1, 1)], swap_in=[(2, 2)])
    preemption.observe(slow, SwapReport(100, 0.1, 100, 0.1), 0.0)
    assert preemption.swap_block_s == pytest.approx(0.2) and not preemption.prefers_swap(160, 16, 0.0)
    assert (preemption.out_bytes, preemption.in_bytes) == (100, 100)


def test_what_steps_cost_for_themselves_is_no_reason_to_swap() -> None:
    """A token costs what it adds to a step, not the mean per token of a step."""
    preemption = Preemption(taught(token_s=1e-5), measured_block_s=0.001)
    assert not preemption.prefers_swap(160, 16, 0.0)


def test_a_long_sequence_is_moved_where_a_short_one_is_computed_again() -> None:
    """A token costs the more the more positions it attends to; a block to be moved always costs the same."""
    preemption = Preemption(taught(token_s=0.001, attended_s=1e-5), measured_block_s=0.02)
    chosen = [preemption.prefers_swap(num_tokens, 16, 0.0) for num_tokens in (16, 32, 64, 128, 256, 512, 1024)]
    assert chosen == sorted(chosen) and chosen[0] is False and chosen[-1] is True


def test_a_block_that_is_hardly_filled_is_not_worth_a_move() -> None:
    preemption = Preemption(taught(), measured_block_s=0.01)
    assert [preemption.prefers_swap(num_tokens, 16, 0.0) for num_tokens in (1, 4, 17, 16, 48)] == [False] * 3 + [True] * 2


def test_auto_without_a_swap_space_recomputes() -> None:
    assert not Preemption(taught()).prefers_swap(160, 16, 0.0)


@pytest.mark.parametrize(("mode", "swaps"), [("swap", True), ("recompute", False)])
def test_a_given_mode_is_taken_whatever_it_costs(mode: str, swaps: bool) -> None:
    assert Preemption(taught(), mode).prefers_swap(16, 16, 0.0) is swaps


def test_after_a_failed_move_nothing_is_swapped_for_a_while() -> None:
    preemption = Preemption(taught(), "swap")
    preemption.observe(StepPlan(1, [], swap_out=[(1, 1)]), SwapReport(lost_slots={1: "no space left"}), 5.0)
    assert preemption.num_failures == 1
    assert not preemption.prefers_swap(16, 16, 5.0 + PAUSE_S - 1) and preemption.prefers_swap(16, 16, 5.0 + PAUSE_S)


@pytest.mark.parametrize("caching", [True, False])
def test_a_swapped_sequence_comes_back_without_computing_anything_again(caching: bool) -> None:
    rig = Rig(num_blocks=6, block_size=8, caching=caching, num_swap_blocks=6)
    one, two = endless(1, 22), endless(2, 14)
    rig.add(one, two)
    rig.finish()
    assert two.num_preemptions > 0 and one.num_preemptions == 0
    assert rig.worker.num_moves_out > 0 and rig.worker.num_moves_in > 0
    assert rig.preemption.num_swap == two.num_preemptions == rig.scheduler.num_preemptions
    assert rig.worker.num_computed_tokens == 22 + 14 + 2 * 19


def test_recompute_computes_again_only_what_others_took() -> None:
    rig = Rig(num_blocks=6, block_size=8, num_swap_blocks=6, preemption_mode="recompute")
    one, two = endless(1, 22), endless(2, 14)
    rig.add(one, two)
    rig.finish()
    assert two.num_preemptions > 0 == rig.preemption.num_swap and rig.worker.num_moves_out == 0
    again = rig.worker.num_computed_tokens - (22 + 14 + 2 * 19)
    assert 0 < again < 33, "the tail of the second, not all of it"


def test_a_preempted_sequence_keeps_its_place() -> None:
    rig = Rig(num_blocks=6, block_size=8, num_swap_blocks=6)
    one, two, three = endless(1, 22), endless(2, 14), endless(3, 4)
    rig.add(one, two)
    while not two.num_preemptions:
        rig.step()
    rig.add(three)
    while two.state is SequenceState.PREEMPTED:
        assert three.state is SequenceState.WAITING
        rig.step()
    rig.finish()


def test_a_move_that_fails_on_the_way_out_means_computing_again() -> None:
    rig = Rig(num_blocks=6, block_size=8, caching=False, num_swap_blocks=6)
    rig.worker.bad_slots = set(range(6))
    one, two = endless(1, 22), endless(2, 14)
    rig.add(one, two)
    rig.finish()
    assert rig.preemption.num_failures > 0 and len(two.output_token_ids) == 20


def test_a_move_that_fails_on_the_way_in_means_computing_again() -> None:
    rig = Rig(num_blocks=6, block_size=8, num_swap_blocks=6)
    rig.worker.unreadable = set(range(6))
    one, two = endless(1, 22), endless(2, 14)
    rig.add(one, two)
    rig.finish()
    assert rig.worker.num_lost_blocks > 0 and len(two.output_token_ids) == 20
    assert rig.preemption.num_swap > 0
