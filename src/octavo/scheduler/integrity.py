"""check_books: that what the scheduler, the KV cache and the worker are thought to hold agrees."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set

from octavo.config.cache import blocks_for
from octavo.kvcache.manager import KVCacheManager
from octavo.scheduler.budget import StepLimits
from octavo.sequence import Sequence


def check_books(
    waiting: Collection[Sequence],
    running: Mapping[int, Sequence],
    live: Set[int],
    orphans: Collection[int],
    on_worker: Set[int],
    manager: KVCacheManager,
    limits: StepLimits,
) -> None:
    """Raise AssertionError, saying what is wrong, unless all books agree. orphans: ended ids that keep blocks for this step."""
    waiting_ids = {sequence.seq_id for sequence in waiting}
    assert len(waiting_ids) == len(waiting), "a sequence waits twice"
    assert not waiting_ids & running.keys(), f"running and waiting: {waiting_ids & running.keys()}"
    assert waiting_ids | running.keys() == live, "a live sequence is neither running nor waiting"
    assert running.keys() <= on_worker, "a running sequence is unknown to the worker"
    assert len(running) <= limits.max_seqs, f"{len(running)} sequences run: {limits}"
    manager.check_integrity()
    with_blocks = manager.seq_ids()
    expected = running.keys() | set(orphans)
    assert with_blocks == expected, f"sequences with blocks and running ones differ: {with_blocks ^ expected}"
    for seq_id, sequence in running.items():
        needed = blocks_for(sequence.num_computed, manager.block_size)
        assert manager.num_granted(seq_id) >= needed, f"sequence {seq_id} computed more than its blocks hold"
        assert sequence.num_computed < sequence.num_tokens, f"sequence {seq_id} runs with nothing to compute"
