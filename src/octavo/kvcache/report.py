"""MemoryReport: the KV cache laid open: what is in use, what is wasted, who has which block.

Plain values: they cross the border between the processes, and the API process loads nothing of the KV cache but them.
"""

from __future__ import annotations

import msgspec

BLOCK_LETTERS = {
    ".": "free, nothing to remember",
    "c": "free, but its content can still be found",
    "k": "free, but kept for a sequence that was preempted or waits: it moves to the swap space before it is reused",
    "u": "in use by one sequence",
    "s": "in use by several sequences",
    "U": "as u, and its content can be found",
    "S": "as s, and its content can be found",
}


class SequenceBlocks(msgspec.Struct):
    """One sequence: num_filled of its num_blocks * block_size slots hold a token; num_shared blocks have other users too."""

    request_id: str
    choice: int
    num_tokens: int
    num_filled: int
    num_blocks: int
    num_shared: int
    block_ids: list[int]


class KeptBlocks(msgspec.Struct):
    """What a sequence without a block table keeps of its first num_kept tokens: blocks that nobody has needed yet, and slots of
    the swap space."""

    request_id: str
    choice: int
    num_tokens: int
    num_kept: int
    block_ids: list[int]
    slots: list[int]


class MemoryReport(msgspec.Struct):
    """The KV cache and the swap space at one moment.

    num_used         blocks that belong to sequences; num_free = num_blocks - num_used
    num_cached       blocks whose content can be found by a later request, num_cached_free of them free
    high_water       most blocks ever in use at once (since the pool got its present size)
    num_slots        token slots of the used blocks; num_filled of them hold a token. A shared block counts once
    waste            share of num_slots without a token: internal fragmentation, 0 when nothing is in use
    query_tokens, hit_tokens   prompt tokens since the start, and those of them that were not computed again
    num_swap_blocks  slots of the swap space, each as large as a block; num_swapped of them are kept for preempted or waiting
                     sequences, num_swap_cached can be found by their content
    swap_high_water  most slots ever kept at once (since the swap space got its present size)
    sequences        those that have blocks, in order of admission
    kept             those that have none and keep some
    block_map        one letter per block, by block id: see BLOCK_LETTERS
    """

    block_size: int
    block_bytes: int
    num_blocks: int
    num_used: int
    num_free: int
    num_cached: int
    num_cached_free: int
    high_water: int
    num_slots: int
    num_filled: int
    waste: float
    query_tokens: int
    hit_tokens: int
    num_swap_blocks: int
    num_swapped: int
    num_swap_cached: int
    swap_high_water: int
    sequences: list[SequenceBlocks]
    kept: list[KeptBlocks]
    block_map: str
