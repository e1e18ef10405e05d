"""Resolved configurations for tests, without a model and a machine to resolve them for."""

from __future__ import annotations

from typing import Any

from octavo.config.cache import GIB
from octavo.config.loading import LoadingConfig
from octavo.config.resolved import ResolvedBackendConfig, ResolvedCacheConfig, ResolvedConfig, ResolvedSchedulerConfig


def resolved_config(
    num_blocks: int = 64,
    block_size: int = 16,
    num_swap_blocks: int = 0,
    *,
    token_bytes: int = 1024,
    kv_cache_dtype: str = "float32",
    dtype: str = "auto",
    device: str = "cpu",
    max_model_len: int = 512,
    **scheduler: Any,
) -> ResolvedConfig:
    """token_bytes: what a token takes in the KV cache; scheduler: other fields of its section."""
    gib_per_block = block_size * token_bytes / GIB
    return ResolvedConfig(
        loading=LoadingConfig(dtype=dtype),
        cache=ResolvedCacheConfig(
            block_size=block_size,
            num_gpu_blocks_override=num_blocks,
            kv_cache_memory=num_blocks * gib_per_block,
            kv_cache_dtype=kv_cache_dtype,
            num_swap_blocks_override=num_swap_blocks,
            swap_space=num_swap_blocks * gib_per_block,
        ),
        scheduler=ResolvedSchedulerConfig(max_model_len=max_model_len, **scheduler),
        backend=ResolvedBackendConfig(device=device, num_threads=1),
    )
