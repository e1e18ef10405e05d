"""A resolved configuration: values where an EngineConfig may have None, checked like its sections."""

from __future__ import annotations

from dataclasses import fields, replace

import msgspec
import pytest
from tests.configs import resolved_config

from octavo.config.cache import CacheConfig
from octavo.config.engine import EngineConfig
from octavo.config.resolve import check_options
from octavo.config.resolved import ResolvedCacheConfig, ResolvedConfig, narrowed
from octavo.errors import ConfigError


def test_a_section_keeps_the_values_that_were_given() -> None:
    given = CacheConfig(block_size=32, swap_path="swap", enable_prefix_caching=False)
    sizes = {"num_gpu_blocks_override": 9, "kv_cache_memory": 1.5, "num_swap_blocks_override": 3, "swap_space": 0.5}
    cache = narrowed(ResolvedCacheConfig, given, **sizes)
    assert (cache.num_blocks, cache.num_swap_blocks) == (9, 3)
    assert {field.name for field in fields(cache) if getattr(cache, field.name) != getattr(given, field.name)} == set(sizes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_gpu_blocks_override": 0}, "--num-gpu-blocks-override is 0; it must be 1 to "),
        ({"kv_cache_memory": 1e9}, "--kv-cache-memory is 1000000000.0; it must be 0 to 65536"),
        ({"swap_space": "much"}, "--swap-space is 'much'; it must be of type float"),
        ({"block_size": 4}, "--block-size is 4; it must be 8 to 128"),
    ],
)
def test_its_values_have_the_bounds_of_the_options(changes: dict[str, object], message: str) -> None:
    config = resolved_config(num_blocks=1000, num_swap_blocks=1000)
    check_options(config)
    with pytest.raises(ConfigError, match=message):
        check_options(replace(config, cache=replace(config.cache, **changes)))  # type: ignore[arg-type]


def test_it_travels_as_what_it_is_and_as_what_it_was_made_from() -> None:
    config = resolved_config(num_blocks=7)
    encoded = msgspec.msgpack.encode(config)
    assert msgspec.msgpack.decode(encoded, type=ResolvedConfig) == config
    start = msgspec.msgpack.decode(encoded, type=EngineConfig)
    assert type(start.cache) is CacheConfig and start.cache.num_gpu_blocks_override == 7
