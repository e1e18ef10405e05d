"""MemoryReport: the KV cache laid open: what is in use, what is wasted, who has which block."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from octavo.kvcache.manager import KVCacheManager
from octavo.sequence import Sequence

BLOCK_LETTERS = {
    ".": "free, nothing to remember",
    "c": "free, but its content can still be found",
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


class MemoryReport(msgspec.Struct):
    """The KV cache at one moment.

    num_used         blocks that belong to sequences; num_free = num_blocks - num_used
    num_cached       blocks whose content can be found by a later request, num_cached_free of them free
    high_water       most blocks ever in use at once (since the pool got its present size)
    num_slots        token slots of the used blocks; num_filled of them hold a token. A shared block counts once
    waste            share of num_slots without a token: internal fragmentation, 0 when nothing is in use
    query_tokens, hit_tokens   prompt tokens since the start, and those of them that were not computed again
    sequences        those that have blocks, in order of admission
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
    sequences: list[SequenceBlocks]
    block_map: str


def memory_report(manager: KVCacheManager, sequences: Iterable[Sequence], block_bytes: int) -> MemoryReport:
    """The report; `sequences` are those with a block table. Cost grows with the number of blocks: not for every step."""
    stats, size = manager.stats(), manager.block_size
    filled = [0] * manager.num_blocks
    tables = [(sequence, manager.block_ids(sequence.seq_id)) for sequence in sequences]
    for sequence, block_ids in tables:
        for index, block_id in enumerate(block_ids):
            filled[block_id] = max(filled[block_id], min(size, sequence.num_computed - index * size))
    counts = manager.ref_counts
    num_slots, num_filled = stats.num_used * size, sum(filled)
    block_map = "".join(_letter(count, manager.digest(block_id) is not None) for block_id, count in enumerate(counts))
    return MemoryReport(
        block_size=size,
        block_bytes=block_bytes,
        num_blocks=stats.num_blocks,
        num_used=stats.num_used,
        num_free=stats.num_free,
        num_cached=stats.num_cached,
        num_cached_free=block_map.count("c"),
        high_water=stats.high_water,
        num_slots=num_slots,
        num_filled=num_filled,
        waste=1 - num_filled / num_slots if num_slots else 0.0,
        query_tokens=stats.query_tokens,
        hit_tokens=stats.hit_tokens,
        sequences=[
            SequenceBlocks(
                request_id=sequence.request_id,
                choice=sequence.choice,
                num_tokens=sequence.num_tokens,
                num_filled=sequence.num_computed,
                num_blocks=len(block_ids),
                num_shared=sum(counts[block_id] > 1 for block_id in block_ids),
                block_ids=block_ids,
            )
            for sequence, block_ids in tables
        ],
        block_map=block_map,
    )


def _letter(num_users: int, is_cached: bool) -> str:
    letter = ".us"[min(num_users, 2)]
    if not is_cached:
        return letter
    return "c" if num_users == 0 else letter.upper()
