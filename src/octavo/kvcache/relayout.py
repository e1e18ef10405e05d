"""RelayoutBuilder: the KV cache in another block size or another number of blocks, with nothing lost that is kept.

    block size 16      |  9   ........... |  4   ........... | 12  ..37       |      positions 0..37 of one sequence
    block size 32      |  0   ............................... | 1   ..37      |

A new block is known by where its tokens lie now (offset in the first old block, number of tokens, old blocks). Two sequences
that share all of that share the new block too. Planning changes nothing: the old manager stays in force until the device has
moved the tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from octavo.config.cache import blocks_for
from octavo.kvcache.manager import KVCacheManager
from octavo.sequence import Sequence
from octavo.step import TokenRun

Source = tuple[int, int, tuple[int, ...]]
"""(offset in the first old block, number of tokens, old blocks)."""


@dataclass(frozen=True, slots=True)
class Relaid:
    """The new books, and the tokens the device must move before they hold."""

    manager: KVCacheManager
    moves: list[TokenRun]


class RelayoutBuilder:
    """Which blocks the kept sequences (those with a block table) take in the new layout; `drop` until they fit."""

    def __init__(
        self, old: KVCacheManager, sequences: Iterable[Sequence], num_blocks: int, block_size: int, num_swap_blocks: int = 0
    ) -> None:
        self._old = old
        self._num_blocks = num_blocks
        self._block_size = block_size
        self._num_swap_blocks = num_swap_blocks
        self._kept = {sequence.seq_id: (sequence, self._sources(sequence)) for sequence in sequences}
        self._dropped: list[int] = []
        self._users = Counter(source for _, sources in self._kept.values() for source in sources)

    @property
    def num_needed(self) -> int:
        """Blocks the kept sequences take."""
        return len(self._users)

    @property
    def fits(self) -> bool:
        return self.num_needed <= self._num_blocks

    def drop(self, sequence: Sequence) -> None:
        """This one will be computed again."""
        _, sources = self._kept.pop(sequence.seq_id)
        self._dropped.append(sequence.seq_id)
        for source in sources:
            self._users[source] -= 1
            if not self._users[source]:
                del self._users[source]

    def finish(self) -> Relaid:
        """The new manager and the moves.

        Free blocks with a prefix-cache entry are kept, the most recent ones if not all fit, where the block size stays; in
        another one their content cannot be named, for their tokens are not known any more.
        """
        assert self.fits, "drop sequences until the rest fits"
        manager = self._old.empty_copy(self._num_blocks, self._block_size, self._num_swap_blocks)
        placed: dict[Hashable, int] = {}
        moves: list[TokenRun] = []
        for sequence, sources in self._kept.values():
            new = [source for source in dict.fromkeys(sources) if source not in placed]
            manager.adopt(sequence, sources, placed)
            for source in new:
                moves += self._moves(source, placed[source])
        if self._block_size == self._old.block_size:
            moves += self._keep_cached(manager)
        manager.check_integrity()
        return Relaid(manager, moves)

    def _sources(self, sequence: Sequence) -> list[Source]:
        """Where the tokens of each new block of a sequence lie now; what was granted ahead of them is not kept."""
        old_size, new_size, end = self._old.block_size, self._block_size, sequence.num_computed
        table = self._old.block_ids(sequence.seq_id)
        sources: list[Source] = []
        for first in range(0, end, new_size):
            last = min(first + new_size, end)
            blocks = tuple(table[first // old_size : blocks_for(last, old_size)])
            sources.append((first % old_size, last - first, blocks))
        return sources

    def _moves(self, source: Source, target: int) -> list[TokenRun]:
        """The tokens of one new block, in runs within one old block each."""
        offset, count, blocks = source
        moves: list[TokenRun] = []
        slot = target * self._block_size
        for block_id in blocks:
            length = min(count, self._old.block_size - offset)
            moves.append((block_id * self._old.block_size + offset, slot, length))
            slot, count, offset = slot + length, count - length, 0
        return moves

    def _keep_cached(self, manager: KVCacheManager) -> list[TokenRun]:
        """Hits on blocks that no kept sequence has, least recently used first, as many as there is room for."""
        old, size = self._old, self._block_size
        order = [*old.free_order(), *(block for seq_id in self._dropped for block in reversed(old.block_ids(seq_id)))]
        cached = [(block_id, digest) for block_id in dict.fromkeys(order) if (digest := old.digest(block_id)) is not None]
        moves: list[TokenRun] = []
        for block_id, digest in cached[max(0, len(cached) - manager.num_free) :]:
            target = manager.adopt_cached(digest)
            if target is not None:
                moves.append((block_id * size, target * size, size))
        return moves
