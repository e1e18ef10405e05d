"""The tuner's rules: when each fires, that none flutters, and that what did no good is taken back."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fakes import FakeWorker, fake_text
from tests.unit.engine.rig import Rig

from octavo.engine.auto_tune import BARRED, CALM_HOLD, COOL_DOWN, HOLD, MIN_CHUNK, AutoTuner, Observation, Settings
from octavo.engine.tuning import INTERVAL_S
from octavo.sampling_params import SamplingParams

CONFIGURED = Settings(max_num_seqs=16, max_num_batched_tokens=512, chunked_prefill_size=256, block_size=16)
STEADY: dict[str, Any] = {
    "num_running": 8,
    "num_waiting": 0,
    "kv_cache_usage": 0.7,
    "waste": 0.02,
    "hit_rate": 0.0,
    "preemptions_per_step": 0.0,
    "median_step_s": 0.02,
    "slow_step_s": 0.05,
    "tokens_per_s": 100.0,
}
CROWDED = {"num_running": 16, "num_waiting": 9, "kv_cache_usage": 0.4}


class Played:
    """A tuner whose decisions are applied."""

    def __init__(self) -> None:
        self.tuner, self.now = AutoTuner(CONFIGURED), CONFIGURED
        self.changes: list[dict[str, Any]] = []

    def play(self, count: int, **seen: Any) -> list[dict[str, Any]]:
        """`count` equal observations; returns the changes they led to."""
        made = []
        for _ in range(count):
            decision = self.tuner.observe(Observation(**{**STEADY, **seen}), self.now)
            if decision is not None:
                assert decision.reason
                given = decision.changes.given()
                values = {name: getattr(self.now, name) for name in Settings.__dataclass_fields__}
                self.now = Settings(**{**values, **given})
                made.append(given)
        self.changes += made
        return made


def test_a_steady_load_changes_nothing() -> None:
    assert Played().play(200) == []


@pytest.mark.parametrize(
    ("seen", "change"),
    [
        ({"preemptions_per_step": 0.2, "kv_cache_usage": 0.95, "num_running": 12}, {"max_num_seqs": 9}),
        ({"slow_step_s": 0.2}, {"chunked_prefill_size": 128}),
        (CROWDED, {"max_num_seqs": 24}),
        ({"num_waiting": 5, "kv_cache_usage": 0.9, "waste": 0.08}, {"block_size": 8}),
    ],
)
def test_each_rule_fires_once_it_held_and_not_before(seen: dict[str, Any], change: dict[str, Any]) -> None:
    played = Played()
    assert played.play(HOLD - 1, **seen) == []
    assert played.play(1) == [] == played.play(HOLD - 1, **seen), "an interruption starts the count anew"
    assert played.play(1, **seen) == [change]
    assert played.play(COOL_DOWN, **seen) == [], "a change needs time to take effect"


def test_smaller_blocks_are_not_bought_with_prefix_cache_hits() -> None:
    assert Played().play(20, num_waiting=5, kv_cache_usage=0.9, waste=0.08, hit_rate=0.3) == []


def test_more_seats_that_change_little_stay_but_are_not_followed_by_more() -> None:
    played = Played()
    played.play(HOLD, **CROWDED)
    assert played.play(BARRED, **{**CROWDED, "num_running": 24}, tokens_per_s=101.0) == []
    assert played.now.max_num_seqs == 24


def test_more_seats_that_bring_fewer_tokens_are_taken_away() -> None:
    played = Played()
    assert played.play(HOLD, **CROWDED) == [{"max_num_seqs": 24}]
    busy = {**CROWDED, "num_running": 24}
    assert played.play(COOL_DOWN + 1, **busy, tokens_per_s=90.0) == [{"max_num_seqs": 16}]
    assert played.play(BARRED - 2, **CROWDED) == [], "what did no good is not tried again soon"
    assert played.play(HOLD + COOL_DOWN, **CROWDED) == [{"max_num_seqs": 24}]


def test_seats_grow_while_they_bring_tokens_up_to_the_bound() -> None:
    played = Played()
    for _ in range(60):
        played.play(1, **{**CROWDED, "num_running": 64}, tokens_per_s=10.0 * played.now.max_num_seqs)
    assert played.now.max_num_seqs == 4 * CONFIGURED.max_num_seqs


def test_after_thrashing_seats_are_not_added_at_once() -> None:
    played = Played()
    played.play(HOLD, preemptions_per_step=0.2, kv_cache_usage=0.95, num_running=12)
    assert played.now.max_num_seqs == 9
    assert played.play(BARRED - 1, num_running=9, num_waiting=5, kv_cache_usage=0.5) == []


def test_chunks_have_a_smallest_size() -> None:
    played = Played()
    played.play(100, slow_step_s=1.0)
    assert played.now.chunked_prefill_size == MIN_CHUNK and len(played.changes) == 2


def test_calm_leads_back_to_what_was_configured_and_stays_there() -> None:
    played = Played()
    played.play(100, slow_step_s=1.0)
    played.play(20, num_waiting=5, kv_cache_usage=0.9, waste=0.08)
    assert played.now != CONFIGURED
    assert played.play(CALM_HOLD - 1, kv_cache_usage=0.1) == []
    played.play(60, kv_cache_usage=0.1)
    assert played.now == CONFIGURED
    assert played.play(100, kv_cache_usage=0.1) == []


def test_a_load_that_alternates_does_not_make_it_flutter() -> None:
    played = Played()
    for _ in range(100):
        played.play(2, **CROWDED)
        played.play(2, preemptions_per_step=0.5, kv_cache_usage=0.95)
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
    assert reports and reports[0].changed == {"max_num_seqs": (2, 3)} and "wait for a seat" in reports[0].reason
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
        clock[0] += INTERVAL_S
        texts.update({output.request_id: output.outputs[0].text for output in rig.step()})
        assert rig.core.tune() is None
    assert len(worker.relayouts) == 135 // BARRED, "it was tried again, but not soon"
    assert rig.core.stats().num_tunings == 0
    assert set(texts.values()) == {fake_text("prompt", 30)}
