"""The tuner's rules: when each fires, that none flutters, and that what did no good is taken back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.fakes import FakeWorker, fake_text
from tests.unit.engine.rig import Rig

from octavo.config.changes import Changes
from octavo.engine.tuning.auto_tune import (
    BARRED,
    CALM_HOLD,
    COOL_DOWN,
    HOLD,
    MIN_BLOCK,
    MIN_CHUNK,
    TRIAL,
    AutoTuner,
    Observation,
    Settings,
)
from octavo.engine.tuning.observe import INTERVAL_S
from octavo.engine.tuning.pace import Work
from octavo.sampling_params import SamplingParams
from octavo.scheduler.step_time import StepCosts, StepShape

CONFIGURED = Settings(
    max_num_seqs=16,
    max_num_batched_tokens=512,
    chunked_prefill_size=256,
    block_size=32,
    admission="optimistic",
    preemption_mode="auto",
    has_swap_space=True,
)
STEADY: dict[str, Any] = {
    "num_running": 8,
    "num_waiting": 0,
    "kv_cache_usage": 0.7,
    "waste": 0.02,
    "hit_rate": 0.0,
    "full_steps": 0.1,
    "preemptions_per_step": 0.0,
    "recomputes_per_step": 0.0,
    "median_step_s": 0.02,
    "slow_step_s": 0.05,
    "costs": StepCosts(0.0, 1e-3, 1e-3, 0.0),
}
CROWDED = {"num_running": 16, "num_waiting": 9, "kv_cache_usage": 0.4}
HELD_BACK = {"num_running": 8, "num_waiting": 9, "kv_cache_usage": 0.7}
WASTEFUL = {"num_waiting": 5, "kv_cache_usage": 0.9, "waste": 0.08}
THRASHING = {"preemptions_per_step": 0.2, "recomputes_per_step": 0.2, "kv_cache_usage": 0.95, "num_running": 12}


class Played:
    """A tuner whose decisions are applied."""

    def __init__(self, configured: Settings = CONFIGURED) -> None:
        self.tuner, self.now = AutoTuner(configured), configured
        self.changes: list[dict[str, Any]] = []

    def play(self, count: int, *, speed: float = 1.0, **seen: Any) -> list[dict[str, Any]]:
        """`count` equal observations of steps as fast as `speed` says; returns the changes they led to."""
        made = []
        for _ in range(count):
            done = Work(StepShape(0, 1000, 0.0), seconds=1.0 / speed)
            decision = self.tuner.observe(Observation(**{**STEADY, **seen}, done=done), self.now)
            if decision is not None:
                assert decision.reason
                made.append(decision.changes.given())
                self.now = replace(self.now, **made[-1])
        self.changes += made
        return made


def test_a_steady_load_changes_nothing() -> None:
    assert Played().play(200) == []


@pytest.mark.parametrize(
    ("seen", "change"),
    [
        (THRASHING, {"max_num_seqs": 9}),
        ({"slow_step_s": 0.2}, {"chunked_prefill_size": 128}),
        (CROWDED, {"max_num_seqs": 25, "max_num_batched_tokens": 521}),
        (HELD_BACK, {"admission": "eager"}),
        (WASTEFUL, {"block_size": 16}),
    ],
)
def test_each_rule_fires_once_it_held_and_not_before(seen: dict[str, Any], change: dict[str, Any]) -> None:
    played = Played()
    assert played.play(HOLD - 1, **seen) == []
    assert played.play(1) == [] == played.play(HOLD - 1, **seen), "an interruption starts the count anew"
    assert played.play(1, **seen) == [change]
    assert played.play(COOL_DOWN, **seen) == [], "a change needs time to take effect"


def test_smaller_blocks_are_not_bought_with_prefix_cache_hits_and_have_a_smallest_size() -> None:
    assert Played().play(20, **WASTEFUL, hit_rate=0.3) == []
    played = Played()
    played.play(200, **WASTEFUL)
    assert played.now.block_size == MIN_BLOCK


def test_seats_are_no_more_than_the_cache_has_room_for_and_four_times_what_was_configured() -> None:
    assert Played().play(HOLD, **{**CROWDED, "num_waiting": 500})[0]["max_num_seqs"] == 34
    assert Played().play(HOLD, **{**CROWDED, "num_waiting": 500, "kv_cache_usage": 0.05})[0]["max_num_seqs"] == 64


def test_seats_do_not_grow_beyond_a_target_for_the_gaps_between_tokens() -> None:
    target = replace(CONFIGURED, target_itl_s=0.025)
    assert Played(target).play(HOLD, **CROWDED)[0]["max_num_seqs"] == 20
    assert Played(target).play(20, **CROWDED | {"median_step_s": 0.025}) == []


def test_a_trial_that_changes_little_stands() -> None:
    played = Played()
    played.play(HOLD, **CROWDED)
    assert played.play(BARRED, **{**CROWDED, "num_running": 25, "num_waiting": 0}, speed=0.97) == []
    assert played.now.max_num_seqs == 25


@pytest.mark.parametrize("seen", [CROWDED, HELD_BACK, WASTEFUL])
def test_a_trial_that_makes_it_slower_is_undone_and_not_tried_again_soon(seen: dict[str, Any]) -> None:
    played = Played()
    played.play(HOLD, **seen)
    assert played.now != CONFIGURED
    busy = {**seen, "num_running": 25} if seen is CROWDED else seen
    played.play(COOL_DOWN + TRIAL, **busy, speed=0.9)
    assert played.now == CONFIGURED and len(played.changes) == 2
    assert played.play(BARRED - 1, **seen) == []
    assert played.play(HOLD + COOL_DOWN, **seen) == [played.changes[0]]


def test_a_trial_is_not_judged_once_nobody_waits() -> None:
    played = Played()
    played.play(HOLD, **HELD_BACK)
    assert played.play(COOL_DOWN + TRIAL, num_waiting=0, speed=0.5) == []
    assert played.now.admission == "eager"


def test_there_is_one_trial_at_a_time() -> None:
    played = Played()
    played.play(HOLD, **CROWDED)
    assert played.play(COOL_DOWN + TRIAL - 1, **HELD_BACK) == []
    assert played.play(HOLD + 1, **HELD_BACK) == [{"admission": "eager"}]


@pytest.mark.parametrize("bound", [{"has_swap_space": False}, {"preemption_mode": "recompute"}, {"admission": "guaranteed"}])
def test_admission_stays_where_preempting_is_dear_or_was_ruled_out(bound: dict[str, Any]) -> None:
    assert Played(replace(CONFIGURED, **bound)).play(20, **HELD_BACK) == []


def test_under_eager_admission_swapping_is_expected_and_computing_again_is_not() -> None:
    played = Played()
    played.play(HOLD, **HELD_BACK)
    full = {**HELD_BACK, "kv_cache_usage": 0.95, "preemptions_per_step": 0.3}
    assert played.play(50, **full) == []
    assert played.play(HOLD, **full, recomputes_per_step=0.3) == [{"admission": "optimistic"}]
    assert played.play(BARRED - 1, **HELD_BACK) == []


def test_thrashing_where_swap_was_excluded_uses_the_swap_space_until_it_is_calm() -> None:
    played = Played(replace(CONFIGURED, preemption_mode="recompute"))
    assert played.play(HOLD, **THRASHING) == [{"preemption_mode": "auto"}]
    played.play(COOL_DOWN + CALM_HOLD, kv_cache_usage=0.1)
    assert played.now.preemption_mode == "recompute"


def test_after_thrashing_seats_are_not_added_at_once() -> None:
    played = Played()
    played.play(HOLD, **THRASHING)
    assert played.now.max_num_seqs == 9
    assert played.play(BARRED - 1, num_running=9, num_waiting=5, kv_cache_usage=0.5) == []


def test_chunks_have_a_smallest_size() -> None:
    played = Played()
    played.play(100, slow_step_s=1.0)
    assert played.now.chunked_prefill_size == MIN_CHUNK and len(played.changes) == 2


def test_calm_leads_back_to_what_was_configured_and_stays_there() -> None:
    played = Played()
    played.play(100, slow_step_s=1.0)
    played.play(20, **WASTEFUL)
    played.play(20, **CROWDED)
    assert played.now != CONFIGURED
    assert played.play(CALM_HOLD - 1, kv_cache_usage=0.1) == []
    played.play(COOL_DOWN + 1, kv_cache_usage=0.1)
    assert played.now == CONFIGURED
    assert played.play(100, kv_cache_usage=0.1) == []


def test_calm_preempts_nobody_who_has_an_added_seat() -> None:
    played = Played()
    played.play(HOLD, **CROWDED)
    assert played.play(100, kv_cache_usage=0.3, num_running=20) == []


def test_a_load_that_alternates_does_not_make_it_flutter() -> None:
    played = Played()
    for _ in range(100):
        played.play(2, **CROWDED)
        played.play(2, **THRASHING)
    assert played.changes == []


def test_the_core_applies_counts_and_survives_what_the_tuner_wants() -> None:
    clock = [0.0]
    worker = FakeWorker()
    rig = Rig(worker, num_blocks=512, max_num_seqs=2, clock=lambda: clock[0], auto_tune=True)
    for index in range(40):
        rig.add(f"r{index}", f"prompt {index}", SamplingParams(max_tokens=30))
    reports = []
    while rig.ledger.num_live:
        clock[0] += INTERVAL_S / 4
        rig.step()
        report = rig.core.tune()
        if report is not None:
            reports.append(report)
    assert reports and reports[0].changed["max_num_seqs"] == (2, 8) and "wait for a seat" in reports[0].reason
    stats = rig.core.stats()
    assert stats.num_tunings == stats.num_reconfigurations == len(reports)
    rig.check_integrity()


def test_a_change_that_the_worker_refuses_leaves_the_core_running() -> None:
    clock = [0.0]
    worker = FakeWorker()
    worker.fail_reconfigure = MemoryError()
    rig = Rig(worker, num_blocks=512, max_num_seqs=2, clock=lambda: clock[0], auto_tune=True)
    for index in range(9):
        rig.add(f"r{index}", "prompt", SamplingParams(max_tokens=30))
    texts = {}
    while rig.ledger.num_live:
        clock[0] += 16 * INTERVAL_S
        texts.update({output.request_id: output.outputs[0].text for output in rig.step()})
        assert rig.core.tune() is None
    assert len(worker.relayouts) == 1, "it was not tried again soon"
    assert rig.core.stats().num_tunings == 0
    assert set(texts.values()) == {fake_text("prompt", 30)}


def test_what_an_operator_sets_is_where_calm_leads_back_to() -> None:
    clock = [0.0]
    rig = Rig(num_blocks=512, max_num_seqs=2, clock=lambda: clock[0], auto_tune=True)
    rig.core.reconfigure(Changes(max_num_seqs=5, max_num_queued_requests=9))
    for _ in range(2 * CALM_HOLD):
        clock[0] += INTERVAL_S
        assert rig.core.tune() is None
    assert rig.core.config.scheduler.max_num_seqs == 5
