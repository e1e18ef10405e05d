"""Metrics say what the ledger says, also after a storm of aborts."""

from __future__ import annotations

from prometheus_client import generate_latest
from tests.unit.engine.rig import Rig

from octavo.config.changes import Changes
from octavo.engine.frontend.ledger import Ledger
from octavo.engine.frontend.metrics import Metrics
from octavo.engine.wire.messages import CoreStats
from octavo.sampling_params import SamplingParams


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"octavo:{name}", {"model_name": "m", **labels})


def test_figures_equal_the_truth_after_an_abort_storm() -> None:
    rig = Rig(max_num_seqs=4)
    metrics = Metrics(rig.ledger, "m")
    for index in range(20):
        rig.add(f"r{index}", "prompt", SamplingParams(max_tokens=5))
    rig.step()
    assert value(metrics, "num_requests_running") == 4 and value(metrics, "num_requests_waiting") == 16
    for index in range(2, 20):
        rig.abort(f"r{index}")
    assert value(metrics, "num_requests_running") == 2 and value(metrics, "num_requests_waiting") == 0
    rig.run()
    assert value(metrics, "num_requests_running") == 0 and value(metrics, "kv_cache_usage_perc") == 0
    assert value(metrics, "request_success_total", finished_reason="abort") == 18
    assert value(metrics, "request_success_total", finished_reason="length") == 2
    assert value(metrics, "generation_tokens_total") == 2 * 5 + 2 * 1
    assert value(metrics, "prompt_tokens_total") == 4 * len("prompt")
    assert value(metrics, "time_to_first_token_seconds_count") == 4
    assert value(metrics, "inter_token_latency_seconds_count") == 2 * 4
    assert value(metrics, "inter_token_latency_seconds_sum") == 2 * 4 * 1.0
    assert value(metrics, "e2e_request_latency_seconds_count") == 20
    assert value(metrics, "num_steps_total") == rig.worker.num_steps
    rig.core.reconfigure(Changes(max_num_seqs=2))
    rig.step()
    assert value(metrics, "num_reconfigurations_total") == 1


def test_two_engines_do_not_share_a_registry() -> None:
    first, second = Rig(), Rig()
    metrics = [Metrics(first.ledger, "m"), Metrics(second.ledger, "m")]
    first.add("r", "prompt")
    first.run()
    assert [value(m, "request_success_total", finished_reason="length") for m in metrics] == [1, 0]
    assert b"octavo:num_requests_running" in generate_latest(metrics[1].registry)


def test_preemptions_swap_and_hits_are_told_apart() -> None:
    ledger = Ledger()
    metrics = Metrics(ledger, "m")
    ledger.core_reported(
        CoreStats(
            num_preemptions=5,
            num_swap_preemptions=3,
            num_swapped_blocks=7,
            swap_out_bytes=1000,
            swap_in_bytes=900,
            num_swap_failures=1,
            prefix_hits=60,
            prefix_hits_freed=30,
            prefix_hits_swapped=10,
        )
    )
    read = metrics.registry.get_sample_value
    labels = {"model_name": "m"}
    assert read("octavo:preemptions_by_mode_total", {**labels, "mode": "swap"}) == 3
    assert read("octavo:preemptions_by_mode_total", {**labels, "mode": "recompute"}) == 2
    assert read("octavo:num_swapped_blocks", labels) == 7
    assert read("octavo:swap_out_bytes_total", labels) == 1000 and read("octavo:swap_in_bytes_total", labels) == 900
    assert read("octavo:swap_failures_total", labels) == 1
    by_source = [
        read("octavo:prefix_cache_hits_by_source_total", {**labels, "source": source})
        for source in ("running", "freed", "swapped")
    ]
    assert by_source == [20, 30, 10]
