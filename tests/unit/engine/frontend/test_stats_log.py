"""The periodic line, and the warnings that say what to change."""

from __future__ import annotations

from typing import Any

from tests.unit.engine.rig import Rig

from octavo.engine.frontend.ledger import Ledger
from octavo.engine.frontend.stats_log import Interval, StatsLog, stats_line
from octavo.sampling_params import SamplingParams


def interval(**values: Any) -> Interval:
    defaults: dict[str, Any] = {
        "seconds": 10.0,
        "iteration_s": 0.02,
        "prompt_tokens": 100,
        "generation_tokens": 400,
        "preemptions": 0,
        "hit_rate": None,
        "num_running": 4,
        "num_waiting": 0,
        "kv_cache_usage": 0.5,
    }
    return Interval(**{**defaults, **values})


def test_the_line_covers_the_time_since_the_last_one() -> None:
    rig = Rig()
    log = StatsLog(rig.ledger, 0.0)
    assert log.interval(1.0).is_idle, "an idle engine is silent"
    rig.add("r", "prompt", SamplingParams(max_tokens=4))
    rig.run()
    line = stats_line(log.interval(3.0))
    assert "num_running_seqs=0 num_waiting=0 kv_cache_usage=0.0% prompt_tokens_per_s=3 generation_tokens_per_s=2 " in line
    assert line.startswith("iteration_time_ms=") and line.endswith("prefix_cache_hit_rate=0.0% preemptions=0")
    assert log.interval(4.0).is_idle


def test_a_full_cache_is_warned_of_once_per_episode() -> None:
    log = StatsLog(Ledger(), 0.0)
    counts = [len(log.warnings(interval(kv_cache_usage=usage))) for usage in (0.5, 0.85, 0.9, 0.95, 0.8, 0.9, 0.7, 0.86)]
    assert counts == [0, 0, 1, 0, 0, 0, 0, 1]
    (warning,) = StatsLog(Ledger(), 0.0).warnings(interval(kv_cache_usage=0.91, preemptions=3))
    assert "91% full and 3 sequences were preempted" in warning and "--kv-cache-memory" in warning


def test_a_jump_of_the_iteration_time_is_warned_of_with_the_likely_cause() -> None:
    for values, word in (
        ({"prompt_tokens": 5000}, "--chunked-prefill-size"),
        ({"num_running": 9}, "--max-num-seqs"),
        ({"num_running": 1}, "another program"),
    ):
        log = StatsLog(Ledger(), 0.0)
        assert log.warnings(interval()) == log.warnings(interval(iteration_s=0.03)) == []
        (warning,) = log.warnings(interval(iteration_s=0.08, **values))
        assert "a step takes 80 ms, it was 23 ms" in warning and word in warning


def test_small_or_empty_steps_are_no_jump() -> None:
    log = StatsLog(Ledger(), 0.0)
    for iteration_s in (0.0005, 0.004, 0.0, 0.0005):
        assert log.warnings(interval(iteration_s=iteration_s)) == []
