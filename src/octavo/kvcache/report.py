"""MemoryReport: the KV cache laid open: what is in use, what is wasted, who has which block."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from octavo.kvcache.manager import KVCacheManager
from octavo.sequence import Sequence

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


def memory_report(
    manager: KVCacheManager, sequences: Iterable[Sequence], block_bytes: int, others: Iterable[Sequence] = ()
) -> MemoryReport:
    """The report; `sequences` are those with a block table, `others` may keep something or nothing.

    Cost grows with the number of blocks: not for every step.
    """
    stats, size = manager.stats(), manager.block_size
    filled = [0] * manager.num_blocks
    tables = [(sequence, manager.block_ids(sequence.seq_id)) for sequence in sequences]
    for sequence, block_ids in tables:
        for index, block_id in enumerate(block_ids):
            filled[block_id] = max(filled[block_id], min(size, sequence.num_computed - index * size))
    counts = manager.ref_counts
    num_slots, num_filled = stats.num_used * size, sum(filled)
    block_map = "".join(_letter(manager, block_id) for block_id in range(manager.num_blocks))
    keeping = manager.swap.seq_ids()
    return MemoryReport(
        block_size=size,
        block_bytes=block_bytes,
        num_blocks=stats.num_blocks,
        num_used=stats.num_used,
        num_free=stats.num_free,
        num_cached=stats.num_cached,
        num_cached_free=sum(not count and manager.digest(block_id) is not None for block_id, count in enumerate(counts)),
        high_water=stats.high_water,
        num_slots=num_slots,
        num_filled=num_filled,
        waste=1 - num_filled / num_slots if num_slots else 0.0,
        query_tokens=stats.query_tokens,
        hit_tokens=stats.hit_tokens,
        num_swap_blocks=stats.num_swap_blocks,
        num_swapped=stats.num_swapped,
        num_swap_cached=stats.num_swap_cached,
        swap_high_water=stats.swap_high_water,
        sequences=[
            SequenceBlocks(
                request_id=sequence.request.request_id,
                choice=sequence.choice,
                num_tokens=sequence.num_tokens,
                num_filled=sequence.num_computed,
                num_blocks=len(block_ids),
                num_shared=sum(counts[block_id] > 1 for block_id in block_ids),
                block_ids=block_ids,
            )
            for sequence, block_ids in tables
        ],
        kept=[_kept(manager, sequence) for sequence in others if sequence.seq_id in keeping],
        block_map=block_map,
    )


def _kept(manager: KVCacheManager, sequence: Sequence) -> KeptBlocks:
    places, num_kept = manager.swap.places(sequence.seq_id, sequence.num_tokens)
    block_ids, slots = [place for place in places if place >= 0], [~place for place in places if place < 0]
    return KeptBlocks(sequence.request.request_id, sequence.choice, sequence.num_tokens, num_kept, block_ids, slots)


def _letter(manager: KVCacheManager, block_id: int) -> str:
    num_users, is_cached = manager.ref_counts[block_id], manager.digest(block_id) is not None
    if num_users == 0:
        return "k" if manager.swap.owns(block_id) else "c" if is_cached else "."
    letter = "us"[min(num_users, 2) - 1]
    return letter.upper() if is_cached else letter
