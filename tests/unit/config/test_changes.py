"""Changes: what a new configuration is, and what is refused with the name of the setting."""

from __future__ import annotations

from typing import Any

import pytest
from tests.configs import resolved_config

from octavo.config.cache import GIB
from octavo.config.changes import Changes, apply_changes, settings_in_force
from octavo.errors import ConfigError

TOKEN_BYTES = 2**16
CONFIG = resolved_config(1000, token_bytes=TOKEN_BYTES, max_model_len=2000)


def changed(free_bytes: int = 2 * GIB, **settings: Any) -> dict[str, Any]:
    """The settings that are others afterwards."""
    before = settings_in_force(CONFIG)
    after = settings_in_force(apply_changes(CONFIG, Changes.of(settings), free_bytes=free_bytes))
    return {name: value for name, value in after.items() if value != before[name]}


def test_a_new_block_size_keeps_the_budget() -> None:
    assert changed(block_size=32) == {"block_size": 32, "num_blocks": 500}
    assert changed(block_size=24)["num_blocks"] == 666


def test_a_new_block_size_keeps_room_for_one_longest_request() -> None:
    config = resolved_config(37, token_bytes=TOKEN_BYTES, max_model_len=592)
    assert apply_changes(config, Changes(block_size=32), free_bytes=2 * GIB).cache.num_blocks == 19


def test_the_budget_is_given_in_blocks_or_in_gib() -> None:
    assert changed(num_blocks=2000)["kv_cache_memory"] == 2 * 16000 * TOKEN_BYTES / GIB
    assert changed(kv_cache_memory=0.5)["num_blocks"] == GIB // 2 // (16 * TOKEN_BYTES)
    assert changed(kv_cache_memory=0.5, block_size=32)["num_blocks"] == GIB // 2 // (32 * TOKEN_BYTES)


def test_limits_that_need_not_be_there_are_taken_away_with_zero() -> None:
    limits: dict[str, Any] = {"target_itl": 50, "max_num_queued_tokens": 9, "queue_timeout": 0.5}
    others: dict[str, Any] = {"max_wait": 0, "admission": "guaranteed"}
    assert changed(**limits, **others) == {**limits, **others}
    limited = apply_changes(CONFIG, Changes(**limits), free_bytes=0)
    free = apply_changes(limited, Changes(target_itl=0, max_num_queued_tokens=0, queue_timeout=0), free_bytes=0)
    assert free == CONFIG and settings_in_force(free)["target_itl"] == 0


def test_the_swap_space_takes_whole_blocks_of_what_is_free_beside_the_kv_cache() -> None:
    block_bytes = 16 * TOKEN_BYTES
    assert changed(swap_space=0.5003) == {"swap_space": 0.5}
    full = apply_changes(CONFIG, Changes(swap_space=1.0), free_bytes=2 * GIB)
    assert full.cache.num_swap_blocks == GIB // block_bytes
    assert apply_changes(full, Changes(swap_space=0.7), free_bytes=0).cache.num_swap_blocks == 716, "less is always had"
    both = apply_changes(full, Changes(block_size=32, swap_space=0.5), free_bytes=2 * GIB).cache
    assert (both.num_blocks, both.num_swap_blocks) == (500, GIB // 2 // (2 * block_bytes))
    kept = apply_changes(full, Changes(block_size=32), free_bytes=2 * GIB).cache
    assert (kept.num_swap_blocks, kept.swap_space) == (GIB // (2 * block_bytes), full.cache.swap_space)
    to_swap = apply_changes(CONFIG, Changes(preemption_mode="swap", swap_space=0.1), free_bytes=2 * GIB)
    with pytest.raises(ConfigError, match="needs a swap space"):
        apply_changes(to_swap, Changes(swap_space=0.0), free_bytes=2 * GIB)


@pytest.mark.parametrize(
    ("settings", "param", "words"),
    [
        ({"max_num_seqs": 600}, "max_num_seqs", "more than max_num_batched_tokens"),
        ({"max_num_batched_tokens": 80}, "max_num_batched_tokens", "chunked_prefill_size is 96"),
        ({"max_num_seqs": True}, "max_num_seqs", "of type int"),
        ({"block_size": 20}, "block_size", "use 16 or 24"),
        ({"num_blocks": 124}, "num_blocks", "125 blocks or more"),
        ({"num_blocks": 5000}, "num_blocks", "are free for the KV cache"),
        ({"kv_cache_memory": 0.01}, "kv_cache_memory", "max_model_len is 2000"),
        ({"kv_cache_memory": "much"}, "kv_cache_memory", "of type float"),
        ({"num_blocks": 500, "kv_cache_memory": 1.0}, "num_blocks", "give one of them"),
        ({"swap_space": 1.5}, "swap_space", "GiB of memory are free"),
        ({"swap_space": 0.0001}, "swap_space", "less than one KV block"),
        ({"swap_space": -1}, "swap_space", "must be 0 to 65536"),
        ({"preemption_mode": "swap"}, "preemption_mode", "this engine has none"),
        ({"admission": "lazy"}, "admission", "must be one of"),
        ({"max_wait": -1}, "max_wait", "must be 0 to 86400"),
        ({"max_wait": "0"}, "max_wait", "of type float"),
        ({"target_itl": 0.01}, "target_itl", "must be 0.1 to 60000"),
        ({"target_itl": False}, "target_itl", "of type float"),
        ({"max_num_queued_tokens": 1.5}, "max_num_queued_tokens", "of type int"),
        ({"queue_timeout": -0.5}, "queue_timeout", "must be 0.001 to 86400"),
        ({"scheduler_policy": "lifo"}, "scheduler_policy", "must be one of"),
        ({"num_seqs": 3}, "num_seqs", "did you mean max_num_seqs"),
        ({"max_num_seqs": None}, "max_num_seqs", "leave it out"),
        ({}, None, "nothing to change"),
    ],
)
def test_what_cannot_be_is_refused_by_name(settings: dict[str, Any], param: str | None, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        changed(**settings)
    assert refused.value.param == param


def test_a_smaller_budget_needs_no_free_memory() -> None:
    assert changed(free_bytes=0, num_blocks=500)["num_blocks"] == 500


def test_every_change_has_a_value_in_force() -> None:
    assert all(value is not None for value in settings_in_force(CONFIG).values())
