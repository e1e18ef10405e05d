"""What --auto-tune does to whole loads: real core, scheduler and tuner over a worker that computes nothing, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from auto_tune import AUTO, KV_GIB, LOADS, MAX_MODEL_LEN, MEASURED, SETTINGS, contestants
from turns import Contestant, Load, OwnClock, VirtualWorker, virtual_core

from octavo.config.engine import EngineConfig
from octavo.engine.args import EngineArgs
from octavo.engine.core.engine_core import EngineCore
from octavo.simulator.profile import Profile
from octavo.step import StepPlan, StepResult

SECONDS = 45.0
FREE_STEPS = replace(MEASURED, cost=replace(MEASURED.cost, step_s=0.0, small_token_s=0.0))
"""A machine on which a step costs nothing for itself, so that only the mixture of work matters."""


def on(profile: Profile = MEASURED) -> Any:
    def make_core(config: EngineConfig, clock: OwnClock) -> EngineCore:
        return virtual_core(config, clock, profile)

    return make_core


def tuned(load: Load, kv_gib: float, **settings: Any) -> Contestant:
    args = EngineArgs(max_model_len=MAX_MODEL_LEN, kv_cache_memory=kv_gib, auto_tune=True, **settings)
    clock = OwnClock(lambda: 0.0)
    return Contestant(AUTO, virtual_core(args.create_engine_config(), clock, MEASURED), load, clock)


@pytest.fixture(scope="module", params=list(LOADS))
def rates(request: pytest.FixtureRequest) -> tuple[str, dict[str, float]]:
    """Tokens per second of every setting under one load, from a third of the time on."""
    played = contestants(request.param, list(SETTINGS), on(), lambda: 0.0)
    for contestant in played:
        contestant.play(SECONDS)
    return request.param, {contestant.name: contestant.rate(SECONDS / 3) for contestant in played}


def test_it_loses_at_most_a_twentieth_to_the_best_fixed_setting(rates: tuple[str, dict[str, float]]) -> None:
    _, by_setting = rates
    assert by_setting[AUTO] >= 0.95 * max(by_setting.values())


def test_it_beats_the_default_where_that_is_not_best(rates: tuple[str, dict[str, float]]) -> None:
    load, by_setting = rates
    gain = {"crowd": 1.02, "long": 0.99, "chat": 1.05, "answers": 1.1}[load]
    assert by_setting[AUTO] >= gain * by_setting["default"]


def test_a_burst_is_served_within_seconds_of_its_beginning_with_more_seats_and_calm_gives_them_back() -> None:
    contestant = tuned(replace(LOADS["crowd"], pause_s=60.0), KV_GIB["crowd"])
    contestant.play(10.0)
    assert contestant.core.config.scheduler.max_num_seqs > 128
    contestant.play(70.0)
    scheduler = contestant.core.config.scheduler
    assert (scheduler.max_num_seqs, scheduler.max_num_batched_tokens) == (64, 96)
    assert "nobody waits any more" in contestant.changes[-1]


def test_what_it_does_to_one_load_is_little_and_settles() -> None:
    for name, load in LOADS.items():
        contestant = tuned(load, KV_GIB[name])
        contestant.play(120.0)
        assert len(contestant.changes) <= 3, contestant.changes
        assert all(float(change.split()[0]) < 60.0 for change in contestant.changes), contestant.changes


def test_seats_that_make_a_machine_slower_are_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    run = VirtualWorker.run

    def run_slowly(worker: VirtualWorker, plan: StepPlan) -> StepResult:
        worker._clock.advance(0.001 * max(0, len(plan.sequences) - 64))
        return run(worker, plan)

    monkeypatch.setattr(VirtualWorker, "run", run_slowly)
    contestant = tuned(LOADS["crowd"], KV_GIB["crowd"])
    contestant.play(40.0)
    assert contestant.core.config.scheduler.max_num_seqs == 64
    assert "crowded: the pace was only" in contestant.changes[1]


def test_the_mixture_of_prompts_and_decodes_is_not_taken_for_a_change_of_pace() -> None:
    """A load begins with prompts alone, then comes a second of decodes alone: tokens per second would say anything."""
    for name in ("crowd", "chat", "answers"):
        (contestant,) = contestants(name, [AUTO], on(FREE_STEPS), lambda: 0.0)
        contestant.play(SECONDS)
        assert not any("the pace was only" in change for change in contestant.changes), contestant.changes
