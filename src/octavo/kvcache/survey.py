"""memory_report: looks through the books of the KV cache and the swap space and says what is there."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.kvcache.manager import KVCacheManager
from octavo.kvcache.report import KeptBlocks, MemoryReport, SequenceBlocks
from octavo.sequence import Sequence


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
