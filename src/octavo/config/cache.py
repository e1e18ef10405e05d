"""CacheConfig: the KV cache's size and shape."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config.option import option

GIB = 2**30


def blocks_for(num_tokens: int, block_size: int) -> int:
    """Blocks that num_tokens positions take."""
    return -(-num_tokens // block_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    block_size: int = option(16, "Tokens per KV block, a multiple of 8.", low=8, high=128)
    kv_cache_memory: float | None = option(
        None,
        "KV cache budget in GiB. Default: a quarter of the memory free for this process, at most 4 GiB; printed at start.",
        low=0,
        high=65536,
        metavar="GiB",
    )
    gpu_memory_utilization: float | None = option(
        None,
        "Share of this process's memory (its cgroup's, or the machine's) for weights and KV cache together, on a CPU too; what "
        "is not free is left out. Without effect beside --kv-cache-memory.",
        low=0.01,
        high=1,
        metavar="SHARE",
    )
    kv_cache_dtype: str = option(
        "auto",
        "Storage type of keys and values; auto is float32 for weights held in float32, else float16. int8 keeps a scale for "
        "each key and value of a head.",
        choices=("auto", "float32", "float16", "bfloat16", "int8"),
    )
    enable_prefix_caching: bool = option(True, "Reuse the KV blocks of equal prompt beginnings. Results do not change.")
    num_gpu_blocks_override: int | None = option(
        None,
        "Exact number of KV blocks, instead of a memory budget (tests, tuning).",
        low=1,
        high=2**31 - 1,
        aliases=("num_blocks",),
    )
    swap_space: float | None = option(
        None,
        "Room in GiB for KV blocks of preempted sequences, 0 for none. Memory, or disk with --swap-path; used only as it fills."
        " Default: as large as the KV cache, at most an eighth of the memory left free; printed at start.",
        low=0,
        high=65536,
        metavar="GiB",
        aliases=("cpu_kv_space",),
    )
    swap_path: str | None = option(
        None,
        "File for the swap space, instead of memory. It is made at start for this user alone and removed at exit.",
        metavar="FILE",
    )
    num_swap_blocks_override: int | None = option(
        None, "Exact number of swap blocks, instead of a size (tests, tuning).", low=0, high=2**31 - 1
    )
