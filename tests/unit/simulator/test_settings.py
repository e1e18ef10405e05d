"""An engine to simulate, from an engine's flags."""

from __future__ import annotations

from dataclasses import replace

import pytest

from octavo.config.cache import CacheConfig
from octavo.config.scheduler import SchedulerConfig
from octavo.errors import ConfigError
from octavo.simulator.profile import DEFAULT_PROFILE
from octavo.simulator.settings import HONOURED, describe_engine, engine_spec, unsupported_settings

PROFILE = replace(DEFAULT_PROFILE, kv_bytes_per_token=2**16, max_position=8192)


def test_a_budget_in_gib_becomes_blocks() -> None:
    spec = engine_spec(CacheConfig(kv_cache_memory=1.0), SchedulerConfig(), PROFILE)
    assert spec.num_blocks == 1024 and spec.max_model_len == 8192
    assert "1024 blocks of 16" in describe_engine(spec)


def test_the_context_is_what_a_small_cache_holds() -> None:
    assert engine_spec(CacheConfig(num_gpu_blocks_override=10), SchedulerConfig(), PROFILE).max_model_len == 160


def test_defaults_follow_a_small_step_and_given_values_are_refused() -> None:
    spec = engine_spec(CacheConfig(), SchedulerConfig(max_num_batched_tokens=32), PROFILE)
    assert (spec.scheduler.max_num_seqs, spec.scheduler.chunked_prefill_size) == (32, 32)
    with pytest.raises(ConfigError, match="--max-num-seqs 48 is more than"):
        engine_spec(CacheConfig(), SchedulerConfig(max_num_batched_tokens=32, max_num_seqs=48), PROFILE)


@pytest.mark.parametrize(
    ("cache", "scheduler", "param"),
    [
        (CacheConfig(block_size=12), SchedulerConfig(), "block_size"),
        (CacheConfig(kv_cache_memory=1.0, num_gpu_blocks_override=5), SchedulerConfig(), "num_blocks"),
        (CacheConfig(kv_cache_memory=1e-9), SchedulerConfig(), "kv_cache_memory"),
        (CacheConfig(num_gpu_blocks_override=5), SchedulerConfig(max_model_len=81), "max_model_len"),
    ],
)
def test_contradictions_name_their_flag(cache: CacheConfig, scheduler: SchedulerConfig, param: str) -> None:
    with pytest.raises(ConfigError) as error:
        engine_spec(cache, scheduler, PROFILE)
    assert error.value.param == param


def test_settings_that_are_not_simulated_are_not_offered() -> None:
    assert "max_num_queued_requests" in unsupported_settings() and not HONOURED & set(unsupported_settings())
