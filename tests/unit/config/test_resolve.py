"""resolve(): defaults fit themselves, given values are honoured or refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.engine.rig import MODEL

from octavo.config.cache import GIB
from octavo.config.machine import Machine
from octavo.config.model import ModelConfig
from octavo.config.resolve import Resolved, resolve
from octavo.engine.args import EngineArgs
from octavo.errors import ConfigError

BLOCK_BYTES = 2**20


def resolved(
    available: int = 8 * GIB, weight_bytes: int = 0, model: ModelConfig = MODEL, block_bytes: int = BLOCK_BYTES, **options: Any
) -> Resolved:
    def kv_block_bytes(model: ModelConfig, block_size: int, dtype: str) -> int:
        return block_bytes * block_size // 16

    config = EngineArgs(**options).create_engine_config()
    machine = Machine(num_cpus=3, available_bytes=available, total_bytes=2 * available)
    return resolve(config, model, machine, kv_block_bytes, weight_bytes=weight_bytes)


def test_every_open_value_is_filled() -> None:
    config = resolved().config
    assert config.backend.num_threads == 3 and config.scheduler.max_model_len == MODEL.max_position
    assert config.cache.kv_cache_dtype == "float32" and config.cache.num_gpu_blocks_override is not None


@pytest.mark.parametrize(
    ("held", "options", "expected"),
    [
        ("float32", {}, "float32"),
        ("bfloat16", {}, "float16"),
        ("gguf", {}, "float16"),
        ("gguf", {"dtype": "float32"}, "float32"),
        ("float32", {"quantization": "int8"}, "float16"),
        ("gguf", {"kv_cache_dtype": "int8"}, "int8"),
    ],
)
def test_keys_and_values_are_float32_beside_float32_weights_alone(held: str, options: dict[str, Any], expected: str) -> None:
    assert resolved(model=replace(MODEL, dtype=held), **options).config.cache.kv_cache_dtype == expected


def test_a_block_size_that_attention_cannot_read_in_place_is_noted() -> None:
    assert not resolved(block_size=32).notices
    assert any("--block-size 24" in notice for notice in resolved(block_size=24).notices)


def test_the_default_budget_is_a_quarter_of_free_memory_up_to_4_gib() -> None:
    assert resolved(available=GIB).num_blocks == GIB // 4 // BLOCK_BYTES
    assert resolved(available=64 * GIB, max_num_seqs=512, max_num_batched_tokens=512).num_blocks == 4096


def test_the_default_budget_is_not_more_than_the_sequences_can_use() -> None:
    assert resolved(max_num_seqs=2).num_blocks == 2 * MODEL.max_position // 16


def test_a_group_size_without_rounding_is_told_to_change_nothing() -> None:
    (notice,) = resolved(quantization_group_size=64).notices
    assert "--quantization-group-size 64 changes nothing under --quantization auto" in notice
    assert not resolved(quantization_group_size=64, quantization="int4").notices


def test_a_given_budget_is_taken() -> None:
    assert resolved(kv_cache_memory=0.5).num_blocks == 512
    assert resolved(num_gpu_blocks_override=7, max_model_len=100).num_blocks == 7


def test_the_context_shrinks_to_the_cache_with_a_notice() -> None:
    result = resolved(num_gpu_blocks_override=4)
    assert result.max_model_len == 64
    assert any("64 tokens instead of the model's 256" in line and "--kv-cache-memory" in line for line in result.describe())


def test_a_context_that_cannot_fit_is_refused_with_the_budget_it_needs() -> None:
    with pytest.raises(ConfigError, match=r"--max-model-len 256 .* holds 64 tokens; set --kv-cache-memory 0.016 or more"):
        resolved(num_gpu_blocks_override=4, max_model_len=256)
    assert resolved(kv_cache_memory=0.016, max_model_len=256).max_model_len == 256


def test_a_context_beyond_the_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="more than the model's context of 256"):
        resolved(max_model_len=257)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"block_size": 12}, "block_size"),
        ({"kv_cache_memory": 100.0}, "kv_cache_memory"),
        ({"num_gpu_blocks_override": 100_000}, "num_gpu_blocks_override"),
        ({"num_gpu_blocks_override": 2000, "kv_cache_memory": 1.0}, "num_gpu_blocks_override"),
        ({"kv_cache_memory": 0.001, "block_size": 32}, "kv_cache_memory"),
        ({"max_num_batched_tokens": 100, "chunked_prefill_size": 101}, "chunked_prefill_size"),
        ({"max_num_batched_tokens": 20, "max_num_seqs": 21}, "max_num_seqs"),
        ({"kv_cache_memory": 0.005}, "kv_cache_memory"),
        ({"num_threads": 17}, "num_threads"),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(options: dict[str, Any], param: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved(**options)
    assert caught.value.param == param


def test_a_short_context_can_be_asked_for() -> None:
    assert resolved(kv_cache_memory=0.005, max_model_len=80).max_model_len == 80


def test_some_more_threads_than_cpus_can_be_asked_for() -> None:
    assert resolved(num_threads=16).config.backend.num_threads == 16


def test_a_default_step_grows_to_what_was_asked_for() -> None:
    result = resolved(max_num_seqs=128)
    assert result.config.scheduler.max_num_batched_tokens == 128
    assert any("--max-num-batched-tokens is 128" in line for line in result.notices)


def test_defaults_are_lowered_to_the_token_budget_with_a_notice() -> None:
    result = resolved(max_num_batched_tokens=32)
    assert (result.config.scheduler.chunked_prefill_size, result.config.scheduler.max_num_seqs) == (32, 32)
    assert len(result.notices) == 2


@pytest.mark.parametrize("block_bytes", [BLOCK_BYTES, 4096])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kv_cache_memory": 0.1234},
        {"kv_cache_memory": 0.00098, "max_model_len": 16},
        {"num_gpu_blocks_override": 4},
        {"num_gpu_blocks_override": 1},
        {"gpu_memory_utilization": 0.4},
    ],
)
def test_resolving_twice_changes_nothing(options: dict[str, Any], block_bytes: int) -> None:
    first = resolved(block_bytes=block_bytes, **options)
    machine = Machine(num_cpus=9, available_bytes=8 * GIB, total_bytes=16 * GIB)
    again = resolve(first.config, MODEL, machine, lambda *_: first.block_bytes)
    assert again.config == first.config


def test_a_cache_of_less_than_a_block_says_how_much_a_block_is() -> None:
    for given in (0.0, 1e-6):
        with pytest.raises(ConfigError, match="is less than one KV block of 4 KiB; give at least 0.001 GiB"):
            resolved(block_bytes=4096, kv_cache_memory=given)


def test_a_tiny_machine_still_gets_one_block() -> None:
    assert resolved(available=0).max_model_len == 16


def test_the_default_swap_space_is_as_large_as_the_cache_up_to_an_eighth_of_the_rest() -> None:
    assert resolved(num_gpu_blocks_override=64).config.cache.num_swap_blocks_override == 64
    tight = resolved(available=2 * GIB, num_gpu_blocks_override=1024).config.cache
    assert tight.num_swap_blocks_override == 128 and tight.swap_space == 0.125
    assert resolved(num_gpu_blocks_override=64, preemption_mode="recompute").config.cache.num_swap_blocks_override == 0


def test_a_given_swap_space_is_taken_printed_and_resolves_to_itself() -> None:
    result = resolved(num_gpu_blocks_override=64, swap_space=0.5, swap_path="/tmp/swap")
    assert result.config.cache.num_swap_blocks_override == 512
    assert any("swap     512 MiB (file /tmp/swap): 512 blocks" in line for line in result.describe())
    assert any("swap     off" in line for line in resolved(swap_space=0).describe())


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"swap_space": 0.0, "preemption_mode": "swap"}, "preemption_mode"),
        ({"swap_space": 0.0, "swap_path": "/tmp/swap"}, "swap_path"),
        ({"swap_space": 0.0001}, "swap_space"),
        ({"swap_space": 100.0}, "swap_space"),
        ({"num_swap_blocks_override": 100_000}, "num_swap_blocks_override"),
        ({"num_swap_blocks_override": 2000, "swap_space": 1.0}, "num_swap_blocks_override"),
    ],
)
def test_swap_options_that_cannot_work_are_refused_by_name(options: dict[str, Any], param: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved(**options)
    assert caught.value.param == param


def test_a_swap_file_is_not_bound_by_memory() -> None:
    assert resolved(swap_space=100.0, swap_path="/tmp/swap").config.cache.num_swap_blocks_override == 102400
