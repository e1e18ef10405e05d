"""EngineCore with several steps in flight: what one of them does wrong is no business of the others."""

from __future__ import annotations

import pytest
from tests.fakes import FakeWorker, fake_text
from tests.unit.engine.rig import Rig

from octavo.config.changes import Changes
from octavo.sampling_params import SamplingParams
from octavo.step import StepPlan


def in_groups(depth: int, worker: FakeWorker | None = None) -> Rig:
    """Prompts of 8 tokens under a budget of 8, so that each of them begins in a step of its own."""
    return Rig(worker, depth=depth, max_num_seqs=4, max_num_batched_tokens=8, chunked_prefill_size=8)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_requests_in_different_steps_give_what_each_gives_alone(depth: int) -> None:
    rig, most = in_groups(depth), 0
    for index in range(4):
        rig.add(f"r{index}", f"prompt {index}", SamplingParams(max_tokens=6 + index))
    deliveries = {}
    while rig.core.has_work():
        rig.core.launch()
        most = max(most, len(rig.worker.started))
        deliveries.update({output.request_id: output for output in rig.step()})
    assert most == depth
    assert [deliveries[f"r{i}"].outputs[0].text for i in range(4)] == [fake_text(f"prompt {i}", 6 + i) for i in range(4)]
    rig.check_integrity()


@pytest.mark.parametrize("depth", [2, 3])
def test_a_step_that_fails_ends_its_guilty_sequence_and_those_behind_it_run(depth: int) -> None:
    rig = in_groups(depth)
    for request_id, prompt in (("good", "prompt 0"), ("bad", "poison 1"), ("late", "prompt 2")):
        rig.add(request_id, prompt, SamplingParams(max_tokens=6))
    deliveries = rig.run()
    assert "poisoned" in (deliveries["bad"][-1].error or "")
    assert deliveries["good"][-1].outputs[0].text == fake_text("prompt 0", 6)
    assert deliveries["late"][-1].outputs[0].text == fake_text("prompt 2", 6)


@pytest.mark.parametrize("depth", [2, 3])
def test_an_interrupt_has_all_steps_in_flight_computed_again(depth: int) -> None:
    def interrupt_once(plan: StepPlan) -> None:
        if worker.num_steps == 3:
            raise KeyboardInterrupt

    worker = FakeWorker(before_step=interrupt_once)
    rig = in_groups(depth, worker)
    for index in range(3):
        rig.add(f"r{index}", f"prompt {index}", SamplingParams(max_tokens=8))
    rig.step()
    rig.step()
    with pytest.raises(KeyboardInterrupt):
        rig.step()
    assert not worker.started
    deliveries = rig.run()
    assert [deliveries[f"r{i}"][-1].outputs[0].text for i in range(3)] == [fake_text(f"prompt {i}", 8) for i in range(3)]


def test_what_is_aborted_in_flight_leaves_nothing_behind() -> None:
    rig = in_groups(3)
    for index in range(3):
        rig.add(f"r{index}", f"prompt {index}", SamplingParams(max_tokens=8))
    rig.core.launch()
    assert len(rig.worker.started) == 3 and rig.core.stats().num_used_blocks == 3
    for index in range(3):
        rig.abort(f"r{index}")
    assert rig.core.stats().num_used_blocks == 3, "a step in flight may still write to them"
    rig.run()
    assert rig.core.stats().num_used_blocks == 0


def test_reconfiguring_settles_the_steps_in_flight_and_loses_none_of_their_tokens() -> None:
    rig = in_groups(3)
    for index in range(3):
        rig.add(f"r{index}", f"prompt {index}", SamplingParams(max_tokens=5))
    rig.step()
    rig.core.launch()
    assert len(rig.worker.started) > 1
    rig.core.reconfigure(Changes.of({"max_num_seqs": 2}))
    assert not rig.worker.started
    deliveries = rig.run()
    assert [deliveries[f"r{i}"][-1].outputs[0].text for i in range(3)] == [fake_text(f"prompt {i}", 5) for i in range(3)]
