"""Choices of one request (n > 1): they share the prompt that choice 0 computes, in every order of events."""

from __future__ import annotations

import pytest
from tests.unit.scheduler.checking_worker import Rig, make_sequence

from octavo.sampling_params import SamplingParams
from octavo.sequence import Sequence, SequenceState


def family(length: int, n: int, **fields: object) -> list[Sequence]:
    """n choices of one prompt; the first is the parent of the others."""
    fields = {"arrival_s": 1.0, "stop_token_ids": [], **fields}
    return [make_sequence(i + 1, range(length), 6, choice=i, fork_of=1 if i else None, **fields) for i in range(n)]


@pytest.mark.parametrize("length", [1, 7, 8, 9, 20, 24])
@pytest.mark.parametrize("caching", [True, False])
def test_the_prompt_of_three_choices_is_computed_once(length: int, caching: bool) -> None:
    rig = Rig(block_size=8, caching=caching)
    choices = family(length, 3)
    rig.add(*choices)
    rig.finish()
    assert [c.num_cached_prompt for c in choices] == [0, length - 1, length - 1]
    assert rig.worker.num_computed_tokens == length + 2 + 3 * 5
    assert rig.worker.num_copies == 2
    outputs = {tuple(c.output_token_ids) for c in choices}
    assert len(outputs) > 1, "choices differ by their noise"


def test_children_share_the_parents_blocks_while_all_run() -> None:
    rig = Rig(num_blocks=8, block_size=8)
    rig.add(*family(30, 4))
    rig.step()
    rig.step()
    tables = [rig.manager.block_ids(i) for i in (1, 2, 3, 4)]
    assert all(table[:3] == tables[0][:3] for table in tables), "four separate prompts would need 16 blocks"
    assert len({table[3] for table in tables}) == 4
    rig.finish()


def test_a_child_waits_for_its_parent_without_holding_up_others() -> None:
    rig = Rig(block_size=8, chunked_prefill_size=8, max_num_batched_tokens=16)
    parent, child = family(20, 2)
    other = make_sequence(9, [50, 51], 2, arrival_s=5.0)
    rig.add(parent, child, other)
    rig.step()
    assert other.state is not SequenceState.WAITING and child.state is SequenceState.WAITING
    rig.finish()
    assert child.num_cached_prompt == 19


@pytest.mark.parametrize("when", ["waiting", "prefill", "decode", "finished"])
def test_a_child_whose_parent_has_gone_starts_on_its_own(when: str) -> None:
    rig = Rig(block_size=8, chunked_prefill_size=8)
    parent, child = family(20, 2)
    if when == "waiting":
        rig.add(parent, child)
        rig.scheduler.abort(1)
    elif when == "prefill":
        rig.add(parent, child)
        rig.step()
        rig.scheduler.abort(1)
    elif when == "decode":
        rig.add(parent)
        for _ in range(4):
            rig.step()
        rig.scheduler.abort(1)
        rig.add(child)
    else:
        rig.add(parent)
        rig.finish()
        rig.add(child)
    rig.finish()
    assert len(child.output_token_ids) == 6
    assert child.num_cached_prompt == {"waiting": 0, "prefill": 8, "decode": 16, "finished": 16}[when]


def test_a_child_does_not_wait_for_a_preempted_parent() -> None:
    rig = Rig(block_size=8, max_num_seqs=1)
    parent, child = family(20, 2)
    rig.add(parent, child)
    rig.step()
    rig.schedule()
    rig.scheduler.fail([], "interrupted")
    assert parent.state is SequenceState.PREEMPTED
    rig.finish()
    assert len(parent.output_token_ids) == len(child.output_token_ids) == 6


def test_a_child_ahead_of_its_parent_in_the_queue_lets_it_pass() -> None:
    rig = Rig(block_size=8, max_num_seqs=2)
    parent, child = family(20, 2)
    parent.request.arrival_s = 3.0
    rig.add(child, parent)
    rig.finish()
    assert child.num_cached_prompt == 19


def test_choices_that_want_prompt_logprobs_compute_their_own_prompt() -> None:
    rig = Rig(block_size=8)
    choices = family(20, 2, sampling=SamplingParams(prompt_logprobs=0))
    rig.add(*choices)
    rig.finish()
    for choice in choices:
        chunks = [u.prompt_logprobs for u in rig.updates if u.seq_id == choice.seq_id and u.prompt_logprobs]
        entries = [entry.token_id for chunk in chunks for entry in chunk.entries]
        assert entries == list(range(1, 20)) and choice.num_cached_prompt == 0


def test_parent_aborted_in_flight_of_the_step_that_forks_leaves_the_child_right() -> None:
    rig = Rig(block_size=8)
    parent, child = family(20, 2)
    rig.add(parent, child)
    rig.step()
    plan = rig.schedule()
    assert plan.block_copies and child.state is SequenceState.RUNNING
    rig.scheduler.abort(1)
    rig.settle(plan)
    rig.finish()
    assert len(child.output_token_ids) == 6
