"""How many blocks the swap space holds."""

from __future__ import annotations

from octavo.config.cache import GIB, CacheConfig
from octavo.errors import ConfigError

DEFAULT_SWAP_SHARE = 8  # the default swap space takes at most 1/8 of the memory the KV cache leaves free


def num_swap_blocks(cache: CacheConfig, preemption_mode: str, num_blocks: int, block_bytes: int, free_bytes: int) -> int:
    """Swap blocks from the override, the size, or the default, in that order; 0 is none.

    num_blocks  blocks of the KV cache; the default is as many, for more were never useful at once
    free_bytes  memory left beside weights and KV cache; a swap file is not bound by it
    Raises: ConfigError for sizes that cannot be had, and for options that ask for a swap space and for none.
    """
    override, size_gib = cache.num_swap_blocks_override, cache.swap_space
    if override is not None:
        num_slots, flag = override, f"--num-swap-blocks-override {override}"
        if size_gib is not None and override * block_bytes > size_gib * GIB:
            raise ConfigError(
                f"{flag} takes {override * block_bytes / GIB:.3f} GiB, more than --swap-space {size_gib:g} GiB; leave one out",
                param="num_swap_blocks_override",
            )
    elif size_gib is not None:
        num_slots, flag = int(size_gib * GIB) // block_bytes, f"--swap-space {size_gib:g}"
        if size_gib and not num_slots:
            raise ConfigError(
                f"{flag} is less than one KV block of {block_bytes / GIB:.6f} GiB; give more, or 0 for none", param="swap_space"
            )
    elif preemption_mode == "recompute":
        num_slots, flag = 0, "--preemption-mode recompute"
    elif cache.swap_path is not None:
        return num_blocks
    else:
        return min(num_blocks, free_bytes // DEFAULT_SWAP_SHARE // block_bytes)
    if not num_slots and preemption_mode == "swap":
        raise ConfigError(f"--preemption-mode swap needs a swap space, and {flag} leaves none", param="preemption_mode")
    if not num_slots and cache.swap_path is not None:
        raise ConfigError(f"--swap-path is given, but {flag} leaves no swap space; leave one out", param="swap_path")
    if cache.swap_path is None and num_slots * block_bytes > free_bytes:
        raise ConfigError(
            f"{flag} needs {num_slots * block_bytes / GIB:.3f} GiB, but only {free_bytes / GIB:.3f} GiB of memory are free "
            f"beside weights and KV cache; lower it, or put it into a file with --swap-path",
            param="swap_space" if override is None else "num_swap_blocks_override",
        )
    return num_slots
