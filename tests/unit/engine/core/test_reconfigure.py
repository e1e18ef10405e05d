"""Settings change under running requests: nothing is lost, and a refusal leaves everything as it was."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fakes import FakeWorker, fake_text
from tests.unit.engine.rig import Rig

from octavo.config.changes import Changes
from octavo.errors import ConfigError
from octavo.sampling_params import SamplingParams

CHANGES: list[dict[str, Any]] = [
    {"max_num_seqs": 3},
    {"max_num_seqs": 30, "max_num_batched_tokens": 40, "chunked_prefill_size": 5},
    {"block_size": 16},
    {"block_size": 32},
    {"num_blocks": 6, "block_size": 32},
    {"num_blocks": 60, "block_size": 8},
    {"scheduler_policy": "sjf"},
    {"scheduler_policy": "fair"},
    {"scheduler_policy": "priority"},
    {"scheduler_policy": "fcfs"},
    {"admission": "eager"},
    {"max_num_queued_requests": 5},
    {"admission": "guaranteed", "target_itl": 20.0},
    {"swap_space": 0.001, "preemption_mode": "swap"},
    {"admission": "eager", "max_wait": 0.0, "target_itl": 0},
    {"swap_space": 0.0001},
    {"max_num_queued_tokens": 7},
    {"swap_space": 0.0, "preemption_mode": "auto"},
    {"admission": "optimistic", "max_wait": 60.0, "max_num_queued_tokens": 0},
]


def test_all_changes_while_requests_run_lose_nothing() -> None:
    rig = Rig()
    for index in range(20):
        rig.add(f"r{index}", f"prompt {index} " * (1 + index % 7), SamplingParams(max_tokens=20, n=1 + index % 2))
    deliveries = {}
    for change in [*CHANGES, *CHANGES[::-1]]:
        for output in rig.step():
            deliveries[output.request_id] = output
        rig.core.reconfigure(Changes(**change))
        rig.check_integrity()
    deliveries.update({request_id: outputs[-1] for request_id, outputs in rig.run().items()})
    for index in range(20):
        prompt = f"prompt {index} " * (1 + index % 7)
        output = deliveries[f"r{index}"]
        assert output.finished
        for choice in output.outputs:
            assert choice.text == fake_text(prompt, 20, choice=choice.index)
    stats = rig.core.stats()
    assert stats.num_reconfigurations == 2 * len(CHANGES) and stats.num_preemptions > 0


def test_the_report_says_what_happened() -> None:
    rig = Rig()
    for index in range(4):
        rig.add(f"r{index}", "x" * 30, SamplingParams(max_tokens=8))
    rig.step()
    report = rig.core.reconfigure(Changes(block_size=16, max_num_seqs=3))
    assert report.changed == {"block_size": (8, 16), "num_blocks": (64, 32), "max_num_seqs": (64, 3)}
    assert (report.num_preempted, report.num_moved_tokens) == (1, 3 * 30)
    assert report.config is rig.core.config
    rig.run()


@pytest.mark.parametrize("error", [MemoryError(), ConfigError("no", param="kv_cache_memory"), RuntimeError("broken")])
def test_a_worker_that_refuses_leaves_everything_as_it_was(error: Exception) -> None:
    worker = FakeWorker()
    rig = Rig(worker)
    rig.add("r", "x" * 30, SamplingParams(max_tokens=8))
    rig.step()
    before = rig.core.config, rig.core.stats(), rig.core.memory_report()
    worker.fail_reconfigure = error
    with pytest.raises(RuntimeError if isinstance(error, RuntimeError) else ConfigError):
        rig.core.reconfigure(Changes(block_size=16, max_num_seqs=1))
    assert (rig.core.config, rig.core.stats(), rig.core.memory_report()) == before
    assert rig.run()["r"][-1].outputs[0].text == fake_text("x" * 30, 8)


def test_changes_that_do_not_concern_the_worker_do_not_reach_it() -> None:
    rig = Rig()
    rig.core.reconfigure(Changes(chunked_prefill_size=8, max_num_queued_requests=3, admission="eager", target_itl=9))
    assert rig.worker.relayouts == []
    rig.core.reconfigure(Changes(max_num_seqs=8))
    assert [relayout.moves for relayout in rig.worker.relayouts] == [None]


def test_a_queue_timeout_that_comes_later_holds_for_those_that_wait_already() -> None:
    rig = Rig(max_num_seqs=1)
    rig.core._clock = lambda: rig.now_s
    for index in range(3):
        rig.add(f"r{index}", "x", SamplingParams(max_tokens=4))
    rig.step()
    rig.core.reconfigure(Changes(queue_timeout=2.0))
    deliveries = rig.run()
    ends = {request_id: outputs[-1].metrics for request_id, outputs in deliveries.items()}
    assert [ends[f"r{index}"].outcome.value for index in range(3)] == ["length", "shed", "shed"]  # type: ignore[union-attr]


def test_a_new_swap_space_is_measured_so_that_auto_can_choose_it() -> None:
    worker = FakeWorker()
    worker.swap_block_s = 0.25
    rig = Rig(worker)
    assert rig.core._scheduler.preemption.swap_block_s is None
    rig.core.reconfigure(Changes(swap_space=0.001))
    worker.swap_block_s = None
    rig.core.reconfigure(Changes(swap_space=0.0005))
    assert rig.core._scheduler.preemption.swap_block_s == 0.25


def test_an_abort_storm_between_changes_leaves_no_block() -> None:
    rig = Rig(num_blocks=32)
    for index in range(60):
        rig.add(f"r{index}", "y" * (1 + index % 40), SamplingParams(max_tokens=30))
        if index % 3 == 0:
            rig.step()
        if index % 5 == 0:
            rig.core.reconfigure(Changes(block_size=8 << (index // 5) % 3))
        if index >= 10:
            rig.abort(f"r{index - 10}")
    for index in range(60):
        rig.abort(f"r{index}")
    rig.run()
    report = rig.core.memory_report()
    assert report.num_used == 0 and set(report.block_map) <= {".", "c"}
