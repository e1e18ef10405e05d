"""KVCacheStats: the KV cache in figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class HitTokens:
    """Prompt tokens found: in blocks of running sequences, in blocks that had been freed, in the swap space."""

    running: int = 0
    freed: int = 0
    swapped: int = 0

    @property
    def total(self) -> int:
        return self.running + self.freed + self.swapped


@dataclass(slots=True)
class KVCacheStats:
    """Counts of blocks now, and of tokens since the start.

    num_used          blocks that belong to sequences; num_free = num_blocks - num_used
    num_cached        blocks that can be found by their content, whether in use or free
    high_water        most blocks in use at once, since the pool got its present size
    query_tokens      prompt tokens of all sequences at their first admission
    hit_tokens        those of them that were not computed again: found in the prefix cache or shared with a fork's parent
    hits              hit_tokens by where they were found
    num_swap_blocks   blocks the swap space has room for
    num_swapped       slots that preempted or waiting sequences keep
    num_swap_cached   slots that can be found by their content, whether kept or not
    swap_high_water   most slots kept at once, since the swap space got its present size
    """

    num_blocks: int
    num_used: int
    num_free: int
    num_cached: int
    high_water: int
    query_tokens: int
    hit_tokens: int
    hits: HitTokens
    num_swap_blocks: int
    num_swapped: int
    num_swap_cached: int
    swap_high_water: int
