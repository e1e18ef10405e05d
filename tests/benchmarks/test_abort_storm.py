"""After a small abort storm on a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path

from abort_storm import Count, differences, settled, storm
from tests.served import Served


def test_after_an_abort_storm_the_metrics_equal_the_clients_count(smollm2_gguf: Path) -> None:
    served = Served(smollm2_gguf, "--kv-cache-memory=0.125", "--max-model-len=512")

    async def run() -> tuple[list[str], Count]:
        before = await settled(served.url)
        count = await storm(served.url, 36, 12)
        return differences(before, await settled(served.url), count), count

    try:
        wrong, count = asyncio.run(run())
        assert count.left == 12 and count.completed == 24 and not count.statuses
        assert not wrong
    finally:
        served.stop()


def test_a_counter_that_is_off_by_one_is_seen() -> None:
    count = Count(completed=2, left=1, prompt_tokens=30, completion_tokens=20, received=3)
    right = {
        "request_success_total:length": 2.0,
        "request_success_total:abort": 1.0,
        "request_success_total:error": 0.0,
        "prompt_tokens_total": 30.0,
        "e2e_request_latency_seconds_count": 3.0,
        "time_to_first_token_seconds_count": 3.0,
        "num_requests_shed_total": 0.0,
        "tenant_generation_tokens_total": 25.0,
        "request_generation_tokens_sum": 25.0,
        "generation_tokens_total": 25.0,
    }
    assert differences({}, right, count) == []
    for name in right:
        assert differences({}, {**right, name: right[name] + 1}, count), name
    assert differences({"prompt_tokens_total": 5.0}, right, count)
