"""Jumps: several equal decode steps at once, with the books left as the single steps would leave them.

While all running sequences decode, nobody ends, nobody is admitted and blocks suffice, a step of the scheduler gives each
running sequence one token and does nothing else: `grow` by one position in order of admission, then, when the step is settled,
one token appended and `commit`. Both are calls that change nothing but where a block begins or becomes full, so that only those
calls have to be made. They are made in the order of the single steps, so that every block gets the same owner, digest and place
in the free list. The twin is `Replica(jumps=False)`; a test compares the two on random traces, down to the block pool.
"""

from __future__ import annotations

from collections.abc import Sequence as Running

from octavo.config.cache import blocks_for
from octavo.kvcache.manager import KVCacheManager
from octavo.sequence import Sequence


def fitting_steps(running: Running[Sequence], manager: KVCacheManager) -> int:
    """Decode steps that all of them can make: nobody ends, and free blocks suffice. At most those before the first end."""
    limit = min(sequence.request.max_tokens - len(sequence.output_token_ids) for sequence in running) - 1
    num_free, size = manager.num_free, manager.block_size
    while limit > 0:
        missing = 0
        for sequence in running:
            missing += blocks_for(sequence.num_computed + limit, size) - manager.num_granted(sequence.seq_id)
        if missing <= num_free:
            break
        limit //= 2
    return limit


def leap(running: Running[Sequence], manager: KVCacheManager, steps: int, own_token: int) -> None:
    """Make `steps` decode steps; each sequence generates own_token + seq_id every time."""
    size = manager.block_size
    events: list[tuple[int, int, int]] = []
    """(step, 0 grow or 1 commit, index in running)"""
    for index, sequence in enumerate(running):
        first = sequence.num_computed
        # Position first + step is written in that step: it opens a block at a multiple of size, and fills one before it.
        events += [(step, 0, index) for step in range(-first % size, steps, size)]
        events += [(step, 1, index) for step in range(-(first + 1) % size, steps, size)]
        sequence.output_token_ids += [own_token + sequence.seq_id] * steps
    events.sort()
    starts = [sequence.num_computed for sequence in running]
    for step, phase, index in events:
        sequence, position = running[index], starts[index] + step
        if phase == 0:
            growth = manager.grow(sequence.seq_id, position, position + 1)
            assert growth is not None and not growth.copies, "a decode step in a jump found no block, or a shared one"
        else:
            sequence.num_computed = position + 1
            manager.commit(sequence)
    for sequence, start in zip(running, starts, strict=True):
        sequence.num_computed = start + steps
