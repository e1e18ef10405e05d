"""What a real server tells of itself: metrics under another prefix, its log as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client import Counter
from prometheus_client.parser import text_string_to_metric_families
from tests.served import Served
from tests.server.conftest import live_server

from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from octavo.server.admin import check_prefix

VLLM_NAMES = [
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "prompt_tokens",
    "generation_tokens",
    "request_success",
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_inference_time_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "request_max_num_generation_tokens",
    "iteration_tokens_total",
    "request_params_n",
    "request_params_max_tokens",
    "request_time_per_output_token_seconds",
    "num_preemptions",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "cache_config_info",
]
"""What the dashboards of vLLM and the inference gateway of Kubernetes read."""


@pytest.fixture(scope="module")
def served(smollm2_gguf: Path) -> Iterator[Served]:
    started = Served(
        smollm2_gguf,
        *["--kv-cache-memory=0.125", "--max-model-len=512", "--metrics-prefix", "vllm", "--log-format", "json"],
    )
    yield started
    started.stop()


def test_dashboards_made_for_vllm_find_their_names(served: Served) -> None:
    httpx.post(f"{served.url}/v1/completions", json={"prompt": "x", "max_tokens": 3}, timeout=60)
    text = httpx.get(f"{served.url}/metrics", timeout=30).text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {f"vllm:{name}" for name in VLLM_NAMES} <= set(families)
    assert not [name for name in families if name.startswith("octavo")]
    for name in ("iteration_time_seconds", "iteration_tokens_total", "detokenize_time_seconds"):
        samples = {sample.name.removeprefix(f"vllm:{name}"): sample.value for sample in families[f"vllm:{name}"].samples}
        assert samples["_count"] > 0 and samples["_sum"] > 0


def test_the_log_is_json_with_request_ids_and_without_text(smollm2_gguf: Path) -> None:
    started = Served(
        smollm2_gguf, *("--kv-cache-memory=0.0625", "--max-model-len=256", "--log-format=json", "--log-level=debug")
    )
    body = {"prompt": "A secret word is xylophone", "max_tokens": 2}
    httpx.post(f"{started.url}/v1/completions", json=body, headers={"x-request-id": "my-id"}, timeout=60)
    code, errors = started.stop()
    lines = [json.loads(line) for line in errors.splitlines()]
    assert code == 0 and all({"time", "level", "logger", "message"} <= set(line) for line in lines)
    (access,) = [line for line in lines if line.get("request_id") == "my-id"]
    assert (access["method"], access["path"], access["status"]) == ("POST", "/v1/completions", 200)
    assert "xylophone" not in errors


def test_labels_keep_their_text_under_another_prefix() -> None:
    with live_server(ServerConfig(metrics_prefix="vllm")) as live:
        Counter("octavo:made", "octavo: x", ["tenant"], registry=live.engine.metrics).labels("octavo:me").inc()
        text = httpx.get(f"{live.url}/metrics").text
        assert 'vllm:made_total{tenant="octavo:me"} 1.0' in text and "# HELP vllm:made_total octavo: x" in text


@pytest.mark.parametrize("prefix", ["", "9a", "a:b", "a b", "é"])
def test_a_prefix_that_no_metric_may_have_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match="--metrics-prefix"):
        check_prefix(prefix)
