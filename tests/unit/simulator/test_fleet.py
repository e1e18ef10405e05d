"""Replicas share the load, senders hold back, what cannot fit is refused."""

from __future__ import annotations

import math

import pytest
from tests.unit.simulator.traces import COST, engine, num_finished, random_trace

from octavo.simulator.fleet import FleetSpec, simulate
from octavo.simulator.trace import make_trace


def test_round_robin_takes_turns() -> None:
    recorder = simulate(random_trace(1, 9), FleetSpec(engine=engine(), num_replicas=3), COST)
    assert recorder.replica == [0, 1, 2] * 3


def test_least_loaded_avoids_the_busy_replica() -> None:
    trace = make_trace("t", [0.0, 0.1, 0.2, 0.3], [60, 5, 5, 5], [60, 1, 1, 1])
    recorder = simulate(trace, FleetSpec(engine=engine(), num_replicas=2, routing="least-loaded"), COST)
    assert recorder.replica == [0, 1, 1, 1]


def test_more_replicas_answer_sooner() -> None:
    trace = random_trace(2, 120, rate=60.0)
    one, four = (simulate(trace, FleetSpec(engine=engine(), num_replicas=count), COST) for count in (1, 4))
    assert sum(four.first_token_s) < 0.5 * sum(one.first_token_s)


@pytest.mark.parametrize("num_replicas", [1, 3])
def test_no_more_requests_are_under_way_than_allowed(num_replicas: int) -> None:
    trace = make_trace("t", [0.0] * 30, [10] * 30, [5 + index % 7 for index in range(30)])
    spec = FleetSpec(engine=engine(), num_replicas=num_replicas, max_concurrency=4)
    recorder = simulate(trace, spec, COST)
    assert num_finished(recorder) == 30
    for now_s in recorder.arrival_s:
        under_way = sum(a <= now_s < f for a, f in zip(recorder.arrival_s, recorder.finish_s, strict=True))
        assert under_way <= 4


def test_too_long_requests_are_refused_and_the_others_run() -> None:
    trace = make_trace("t", [0.0, 0.1, 0.2], [10, 100, 10], [5, 50, 5])
    recorder = simulate(trace, FleetSpec(engine=engine(max_model_len=128)), COST)
    assert recorder.num_refused == 1 and num_finished(recorder) == 2 and math.isnan(recorder.finish_s[1])


def test_progress_ends_at_the_whole_trace() -> None:
    heard: list[int] = []
    simulate(random_trace(3, 600, rate=5.0, longest=8), FleetSpec(engine=engine()), COST, heard.append)
    assert heard[-1] == 600 and heard == sorted(heard) and len(heard) == 3
