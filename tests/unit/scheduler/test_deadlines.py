"""Sequences that have run out of time, in every state."""

from __future__ import annotations

from tests.unit.scheduler.checking_worker import Rig, make_sequence

from octavo.scheduler.deadlines import Deadlines
from octavo.scheduler.update import SequenceUpdate
from octavo.sequence import FinishReason, SequenceState


def ends(rig: Rig) -> dict[int, FinishReason]:
    return {update.seq_id: update.finish_reason for update in rig.updates if update.finish_reason is not None}


def step_at(rig: Rig, now: float) -> list[SequenceUpdate]:
    plan = rig.scheduler.schedule(now)
    assert plan is not None
    rig.plans.append(plan)
    return rig.settle(plan)


def test_a_running_sequence_ends_with_what_it_has() -> None:
    rig = Rig()
    sequence = make_sequence(1, range(5), 50, stop_token_ids=[], arrival_s=0.0, deadline_s=3.0)
    rig.add(sequence)
    for now in (1.0, 2.0, 3.0):
        step_at(rig, now)
    assert ends(rig) == {1: FinishReason.TIMEOUT} and len(sequence.output_token_ids) == 2
    rig.finish()


def test_a_waiting_sequence_ends_at_its_deadline_without_ever_running() -> None:
    rig = Rig(max_num_seqs=1)
    first = make_sequence(1, range(5), 9, stop_token_ids=[], arrival_s=0.0)
    rig.add(first, make_sequence(2, [1], arrival_s=0.0, deadline_s=2.5))
    for now in (1.0, 2.0, 3.0):
        step_at(rig, now)
    assert ends(rig) == {2: FinishReason.TIMEOUT} and not rig.scheduler.num_waiting
    rig.finish()


def test_the_queue_timeout_sheds_only_what_no_step_has_touched() -> None:
    rig = Rig(max_num_seqs=1, queue_timeout=2.0)
    rig.add(*[make_sequence(i, range(5), 9, stop_token_ids=[], arrival_s=0.0) for i in (1, 2)])
    for now in (1.0, 2.0, 3.0):
        step_at(rig, now)
    assert ends(rig) == {2: FinishReason.SHED}
    rig.finish()


def test_later_choices_of_a_request_that_runs_are_not_shed() -> None:
    rig = Rig(max_num_seqs=1, queue_timeout=2.0)
    first = make_sequence(1, range(5), 9, stop_token_ids=[], arrival_s=0.0)
    rig.add(first, make_sequence(2, range(5), 3, choice=1, fork_of=1, arrival_s=0.0))
    rig.finish()
    assert FinishReason.SHED not in ends(rig).values()


def test_an_earlier_end_wins() -> None:
    rig = Rig(queue_timeout=50.0)
    rig.add(make_sequence(1, range(5), 2, stop_token_ids=[], arrival_s=0.0, deadline_s=20.0))
    rig.finish()
    assert ends(rig) == {1: FinishReason.LENGTH} and rig.scheduler.schedule(100.0) is None


def test_both_deadlines_at_once_end_it_once() -> None:
    rig = Rig(max_num_seqs=1, queue_timeout=5.0)
    first = make_sequence(1, range(5), 9, stop_token_ids=[], arrival_s=0.0)
    rig.add(first, make_sequence(2, [1], arrival_s=0.0, deadline_s=5.0))
    step_at(rig, 1.0)
    step_at(rig, 5.0)
    assert ends(rig) == {2: FinishReason.SHED}
    rig.finish()


def test_ended_sequences_are_not_kept_until_their_deadline() -> None:
    deadlines = Deadlines(None)
    for number in range(10_000):
        sequence = make_sequence(number, [1], deadline_s=1e9)
        deadlines.add(sequence)
        sequence.state = SequenceState.FINISHED
    assert len(deadlines._heap) < 200
