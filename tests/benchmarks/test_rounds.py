"""Turns, failures and figures that only some rounds have."""

from __future__ import annotations

import pytest
from comparison.processes import PeerError
from comparison.rounds import Contestant, Rounds, alternate

from octavo.errors import ConfigError


def test_contestants_take_turns_in_every_round(capsys: pytest.CaptureFixture[str]) -> None:
    order: list[str] = []

    def contestant(name: str) -> Contestant:
        def measure(index: int) -> dict[str, float]:
            order.append(f"{name}{index}")
            return {"x": float(index)}

        return Contestant(name, measure)

    rounds = alternate([contestant("a"), contestant("b")], 2)
    assert order == ["a0", "b0", "a1", "b1"]
    assert rounds.values("b", "x", 2) == [0.0, 1.0]
    assert "round 2/2  b  x=1" in capsys.readouterr().err


@pytest.mark.parametrize("error", [PeerError("it ended"), ConfigError("no such option")])
def test_a_failure_leaves_a_hole_and_the_others_go_on(error: Exception) -> None:
    def fails_first(index: int) -> dict[str, float]:
        if index == 0:
            raise error
        return {"x": 7.0}

    rounds = alternate([Contestant("a", fails_first), Contestant("b", lambda index: {"x": 1.0})], 2)
    assert rounds.values("a", "x", 2) == [None, 7.0]
    assert rounds.values("b", "x", 2) == [1.0, 1.0]
    assert rounds.errors == [("a", str(error))]


def test_a_metric_that_comes_late_or_stops_is_none_elsewhere() -> None:
    rounds = Rounds()
    rounds.add("a", 1, {"x": 2.0})
    assert rounds.values("a", "x", 3) == [None, 2.0, None]
    assert rounds.values("a", "unknown", 2) == [None, None]
    assert rounds.values("nobody", "x", 1) == [None]
