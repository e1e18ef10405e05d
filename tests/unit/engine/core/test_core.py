"""EngineCore: fan-out, aborts in every state, faults that hit one request only."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes import FakeWorker, fake_text
from tests.unit.engine.rig import Rig

from octavo.engine.core.engine_core import MAX_FAILED_STEPS, WorkerBroken
from octavo.request import Request
from octavo.sampling_params import SamplingParams
from octavo.step import StepPlan


def test_batched_requests_give_what_each_gives_alone() -> None:
    rig = Rig()
    for index in range(5):
        rig.add(f"r{index}", f"prompt {index}", SamplingParams(max_tokens=3 + index))
    deliveries = rig.run()
    for index in range(5):
        last = deliveries[f"r{index}"][-1]
        assert last.finished and last.outputs[0].text == fake_text(f"prompt {index}", 3 + index)
        assert last.outputs[0].finish_reason == "length"
    assert max(rig.worker.batch_sizes) == 5


def test_choices_share_the_prompt_and_differ_by_their_noise() -> None:
    rig = Rig()
    rig.add("r", "a prompt of several blocks", SamplingParams(n=3, max_tokens=4, seed=7))
    (last,) = [output for output in rig.run()["r"] if output.finished]
    assert [choice.index for choice in last.outputs] == [0, 1, 2]
    assert [choice.text for choice in last.outputs] == [
        fake_text("a prompt of several blocks", 4, seed=7, choice=choice) for choice in range(3)
    ]
    assert rig.core.stats().prefix_hits > 0


def test_a_poisoned_sequence_ends_alone_and_its_neighbours_go_on() -> None:
    rig = Rig()
    rig.add("good", "first", SamplingParams(max_tokens=6))
    rig.step()
    rig.add("bad", "poison")
    rig.add("late", "third", SamplingParams(max_tokens=6))
    deliveries = rig.run()
    assert deliveries["bad"][-1].outputs[0].finish_reason == "error"
    assert "poisoned" in (deliveries["bad"][-1].error or "")
    assert deliveries["good"][-1].outputs[0].text == fake_text("first", 6)
    assert deliveries["late"][-1].outputs[0].text == fake_text("third", 6)


def test_one_failing_choice_ends_its_whole_request() -> None:
    def fail_choice_one(plan: StepPlan) -> None:
        if any(worker.known[share.seq_id][0].choice == 1 for share in plan.sequences):
            raise ValueError("choice 1")

    worker = FakeWorker(before_step=fail_choice_one)
    rig = Rig(worker)
    rig.add("r", "prompt", SamplingParams(n=3, max_tokens=8))
    last = rig.run()["r"][-1]
    assert last.finished and last.error is not None
    assert {choice.finish_reason for choice in last.outputs} == {"error"}


def test_beside_a_wide_request_another_one_is_in_the_next_step() -> None:
    rig = Rig(max_num_seqs=8, num_blocks=256)
    rig.add("wide", "prompt", SamplingParams(n=64, max_tokens=8, ignore_eos=True))
    for _ in range(3):
        rig.step()
    assert rig.worker.batch_sizes[-1] == 4, "half of the seats"
    rig.add("other", "another", SamplingParams(max_tokens=2, ignore_eos=True))
    rig.step()
    assert rig.worker.batch_sizes[-1] == 5
    last = rig.run()["wide"][-1]
    assert last.finished and [len(choice.token_ids) for choice in last.outputs] == [8] * 64


def test_a_worker_that_always_fails_is_reported_as_broken() -> None:
    def fail(plan: StepPlan) -> None:
        raise RuntimeError("no device")

    rig = Rig(FakeWorker(before_step=fail))
    with pytest.raises(WorkerBroken, match="no device"):
        for index in range(MAX_FAILED_STEPS):
            rig.add(f"r{index}", "prompt")
            rig.step()


def test_a_request_the_scheduler_refuses_gets_an_error_and_harms_nobody() -> None:
    rig = Rig()
    rig.add("good", "prompt")
    hopeless = Request(
        request_id="hopeless",
        prompt_token_ids=[],
        sampling=SamplingParams(),
        seed=0,
        max_tokens=1,
        stop_token_ids=[],
        arrival_s=0.0,
    )
    rig.core.add_request(hopeless)
    rig.core.add_request(hopeless)
    outputs = rig.core.step().outputs
    refused = [output for output in outputs if output.request_id == "hopeless"]
    assert [output.finish_reason for output in refused] == ["error", "error"]
    assert "no tokens" in (refused[0].error or "")


def test_abort_frees_everything_in_every_state() -> None:
    rig = Rig(num_blocks=32, max_num_seqs=2, max_num_batched_tokens=8, chunked_prefill_size=8)
    rig.add("decoding", "short", SamplingParams(max_tokens=50))
    rig.step()
    rig.step()
    rig.add("prefilling", "x" * 60, SamplingParams(max_tokens=50))
    rig.add("queued", "y" * 20, SamplingParams(max_tokens=50))
    rig.step()
    assert rig.ledger.num_queued == 1 and rig.ledger.num_running == 2
    for request_id in ("queued", "prefilling", "decoding"):
        (output,) = rig.abort(request_id)
        assert output.finished and output.outputs[0].finish_reason == "abort"
        assert rig.abort(request_id) == []
    rig.check_integrity()
    assert rig.core.stats().num_used_blocks == 0 and not rig.core.has_work()


def test_abort_of_a_preempted_sequence_frees_everything() -> None:
    rig = Rig(num_blocks=16, max_num_seqs=4)
    for index in range(4):
        rig.add(f"r{index}", f"{index}" * 30, SamplingParams(max_tokens=60, ignore_eos=True))
    while rig.core.stats().num_preemptions == 0:
        rig.step()
    for index in range(4):
        rig.abort(f"r{index}")
    rig.check_integrity()
    assert rig.core.stats().num_used_blocks == 0


def test_preempted_requests_give_the_same_text() -> None:
    rig = Rig(num_blocks=16, max_num_seqs=4)
    for index in range(4):
        rig.add(f"r{index}", f"{index}" * 30, SamplingParams(max_tokens=60))
    deliveries = rig.run()
    assert rig.core.stats().num_preemptions > 0
    for index in range(4):
        assert deliveries[f"r{index}"][-1].outputs[0].text == fake_text(f"{index}" * 30, 60)


def test_a_step_without_work_only_carries_statistics() -> None:
    message = Rig().core.step()
    assert message.outputs == [] and message.started == []
    assert message.stats is not None and message.stats.num_blocks == 64


_EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 40), st.integers(1, 3)),
        st.tuples(st.just("abort"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("step"), st.integers(1, 4), st.just(0)),
    ),
    max_size=40,
)


@given(_EVENTS, st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_any_history_of_adds_aborts_stops_and_steps_ends_every_request_once(
    events: list[tuple[str, int, int]], depth: int
) -> None:
    rig = Rig(num_blocks=16, depth=depth, max_num_seqs=5, max_num_batched_tokens=24, chunked_prefill_size=16)
    num_added = 0
    for kind, number, choices in events:
        if kind == "add":
            # "poison" fails, "e" stops many of the others at some point.
            prompt = ("poison" if number % 9 == 0 else "") + "x" * number
            rig.add(f"r{num_added}", prompt, SamplingParams(n=choices, seed=number, max_tokens=12, stop=["e"]))
            num_added += 1
        elif kind == "abort":
            rig.abort(f"r{number}")
        else:
            for _ in range(number):
                rig.step()
    rig.run()
    assert sum(rig.ledger.totals.finished.values()) == num_added
    assert rig.core.stats().num_used_blocks == 0


def test_an_interrupted_step_is_computed_again() -> None:
    def interrupt_once(plan: StepPlan) -> None:
        if worker.num_steps == 3:
            raise KeyboardInterrupt

    worker = FakeWorker(before_step=interrupt_once)
    rig = Rig(worker)
    rig.add("r", "prompt", SamplingParams(max_tokens=8))
    rig.add("aborted", "prompt two", SamplingParams(max_tokens=8))
    rig.step()
    rig.step()
    with pytest.raises(KeyboardInterrupt):
        rig.step()
    rig.abort("aborted")
    assert rig.run()["r"][-1].outputs[0].text == fake_text("prompt", 8)
