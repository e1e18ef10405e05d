"""KVCacheManager: the KV cache as the scheduler sees it. Grants blocks to sequences, shares equal beginnings, keeps count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from octavo.kvcache.block_pool import BlockPool
from octavo.kvcache.block_table import BlockTable, blocks_for
from octavo.kvcache.prefix_cache import PrefixCache, root_digest
from octavo.sequence import Sequence


@dataclass(slots=True)
class KVCacheStats:
    """Counts of blocks now, and of tokens since the start.

    num_used      blocks that belong to sequences; num_free = num_blocks - num_used
    num_cached    blocks that can be found by their content, whether in use or free
    high_water    most blocks ever in use at once
    query_tokens  prompt tokens of all sequences at their first admission
    hit_tokens    those of them that were not computed again: found in the prefix cache or shared with a fork's parent
    """

    num_blocks: int
    num_used: int
    num_free: int
    num_cached: int
    high_water: int
    query_tokens: int
    hit_tokens: int


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """Blocks that already hold the first num_tokens tokens of a sequence; num_idle of them are on the free list now."""

    block_ids: list[int]
    num_tokens: int
    num_idle: int


@dataclass(frozen=True, slots=True)
class Growth:
    """What `grow` changed: blocks appended to the table, entries replaced in it, block copies the device must make first."""

    new_block_ids: list[int] = field(default_factory=list)
    replaced: list[tuple[int, int]] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)


NO_GROWTH = Growth()
"""Answer of `grow` when the table is long enough and private; shared by all callers, never modified."""


class KVCacheManager:
    """Block tables of the live sequences over one pool.

    Life of a sequence here: `match` or `match_parent` (reads only), `allocate` (takes the matched blocks), then per step `grow`
    before and `commit` after, and once `free`. `end_step` closes every step, whatever came of it.
    """

    def __init__(self, num_blocks: int, block_size: int, enable_prefix_caching: bool = True, weights_version: str = "") -> None:
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self._weights_version = weights_version
        self._pool = BlockPool(num_blocks)
        self._cache = PrefixCache(num_blocks, block_size)
        self._tables: dict[int, BlockTable] = {}
        self._chains: dict[int, list[bytes]] = {}
        """Root, then the digests of the leading full blocks, per sequence; made as far as they were needed."""
        self._held: dict[int, list[int]] = {}
        """Sources of this step's block copies, per copying sequence. They keep their reference until `end_step`, so that no
        source is the target of another copy: the copies of a step may run in any order."""
        self._query_tokens = 0
        self._hit_tokens = 0

    @property
    def num_blocks(self) -> int:
        return self._pool.num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that can be granted; those among them that are cached lose their content when granted."""
        return self._pool.num_free

    @property
    def ref_counts(self) -> list[int]:
        """Users of each block, by block id. For reading only."""
        return self._pool.ref_counts

    def seq_ids(self) -> set[int]:
        """The sequences that have a block table."""
        return set(self._tables)

    def block_ids(self, seq_id: int) -> list[int]:
        """A copy of the block table of a sequence that has one."""
        return self._tables[seq_id].block_ids.copy()

    def num_granted(self, seq_id: int) -> int:
        """Length of the block table of a sequence that has one."""
        return len(self._tables[seq_id].block_ids)

    def match(self, sequence: Sequence, max_tokens: int) -> PrefixMatch:
        """The longest cached beginning of a sequence, in whole blocks and at most max_tokens. Takes nothing."""
        block_ids: list[int] = []
        if self.enable_prefix_caching:
            for index in range(min(max_tokens, sequence.num_tokens) // self.block_size):
                block_id = self._cache.find(self._digest(sequence, index))
                if block_id is None:
                    break
                block_ids.append(block_id)
        return self._matched(block_ids, len(block_ids) * self.block_size)

    def match_parent(self, parent_id: int, num_tokens: int) -> PrefixMatch:
        """The parent's first num_tokens (all computed), its partly filled last block included. Takes nothing."""
        block_ids = self._tables[parent_id].block_ids[: blocks_for(num_tokens, self.block_size)]
        return self._matched(block_ids, num_tokens)

    def cost(self, match: PrefixMatch, first: int, num_tokens: int) -> int:
        """Blocks that leave the free list until a sequence with this match, writing from position `first`, has num_tokens."""
        num_matched = len(match.block_ids)
        copied = 1 if first // self.block_size < num_matched else 0
        return match.num_idle + copied + max(0, blocks_for(num_tokens, self.block_size) - num_matched)

    def allocate(self, sequence: Sequence, match: PrefixMatch, first: int) -> None:
        """Give the sequence a table of the matched blocks, shared; it will compute from position `first` on."""
        assert sequence.seq_id not in self._tables, f"sequence {sequence.seq_id} has blocks already"
        for block_id in match.block_ids:
            self._pool.share(block_id)
        self._tables[sequence.seq_id] = BlockTable(self.block_size, list(match.block_ids), first // self.block_size)
        if sequence.num_cached_prompt is None:
            self._query_tokens += sequence.num_prompt
            self._hit_tokens += min(first, sequence.num_prompt)

    def grow(self, seq_id: int, first: int, last: int) -> Growth | None:
        """Make positions first..last (end exclusive) writable: append blocks, copy a block that others see.

        Returns None, with nothing changed, when the pool has too few free blocks. Only the block of `first` can be one that
        others see: every later block was granted for this sequence alone and is not full yet.
        """
        table, pool = self._tables[seq_id], self._pool
        index = table.write_index(first, pool.ref_counts, self._cache.digests)
        num_missing = table.num_missing(last)
        if index is None and num_missing <= 0:
            return NO_GROWTH
        if max(0, num_missing) + (index is not None) > pool.num_free:
            return None
        growth = Growth([self._take() for _ in range(num_missing)])
        table.block_ids += growth.new_block_ids
        if index is not None:
            copy = self._take()
            source = table.replace(index, copy)
            self._held.setdefault(seq_id, []).append(source)
            growth.replaced.append((index, copy))
            growth.copies.append((source, copy))
        return growth

    def commit(self, sequence: Sequence) -> None:
        """The step that computed up to sequence.num_computed is settled: its full blocks can be found from now on."""
        table = self._tables[sequence.seq_id]
        num_full = sequence.num_computed // self.block_size
        if num_full <= table.num_committed:
            return
        if self.enable_prefix_caching:
            for index in range(table.num_committed, num_full):
                self._cache.insert(self._digest(sequence, index), table.block_ids[index])
        table.num_committed = num_full

    def free(self, seq_id: int) -> None:
        """Give back all a sequence has; nothing happens if it has nothing. Cached blocks stay hits until they are reused."""
        self._chains.pop(seq_id, None)
        self._release_held(seq_id)
        table = self._tables.pop(seq_id, None)
        if table is not None:
            # Last block first: of one prompt's blocks the later ones go first, for without its beginning an end is no hit.
            for block_id in reversed(table.block_ids):
                self._release(block_id)

    def end_step(self) -> None:
        """The step's block copies have been made, or will never be."""
        for seq_id in list(self._held):
            self._release_held(seq_id)

    def empty_copy(self, num_blocks: int, block_size: int) -> KVCacheManager:
        """A manager of another pool for the same weights, without sequences; counters of tokens go on from here."""
        copy = KVCacheManager(num_blocks, block_size, self.enable_prefix_caching, self._weights_version)
        copy._query_tokens, copy._hit_tokens = self._query_tokens, self._hit_tokens
        return copy

    def adopt(self, sequence: Sequence, keys: Iterable[Hashable], placed: dict[Hashable, int]) -> None:
        """Give a sequence, computed up to num_computed elsewhere, a table of one block per key; a placed key is shared.

        Keys that are new go into `placed` with the block they got. The caller made sure that the pool has enough.
        """
        table = BlockTable(self.block_size)
        for key in keys:
            block_id = placed.get(key)
            if block_id is None:
                placed[key] = block_id = self._take()
            else:
                self._pool.share(block_id)
            table.block_ids.append(block_id)
        self._tables[sequence.seq_id] = table
        self.commit(sequence)

    def adopt_cached(self, digest: bytes) -> int | None:
        """A free block that will be found under the digest, reused after all that were adopted before; None if one is there."""
        if self._cache.find(digest) is not None:
            return None
        block_id = self._take()
        self._cache.insert(digest, block_id)
        self._release(block_id)
        return block_id

    def digest(self, block_id: int) -> bytes | None:
        """The digest under which a block can be found."""
        return self._cache.digests[block_id]

    def free_order(self) -> list[int]:
        """The free blocks, next to be reused first; O(num_free)."""
        return self._pool.free_order()

    def stats(self) -> KVCacheStats:
        pool = self._pool
        return KVCacheStats(
            num_blocks=pool.num_blocks,
            num_used=pool.num_used,
            num_free=pool.num_free,
            num_cached=len(self._cache),
            high_water=pool.high_water,
            query_tokens=self._query_tokens,
            hit_tokens=self._hit_tokens,
        )

    def check_integrity(self) -> None:
        """Raise AssertionError, saying what is wrong, unless each reference has an owner and each free block is in the list."""
        self._pool.check_integrity()
        self._cache.check_integrity()
        owners = Counter(block_id for table in self._tables.values() for block_id in table.block_ids)
        owners.update(block_id for held in self._held.values() for block_id in held)
        for block_id, count in enumerate(self._pool.ref_counts):
            assert count == owners[block_id], f"block {block_id} has ref count {count} but {owners[block_id]} owners"
        for seq_id, table in self._tables.items():
            assert len(set(table.block_ids)) == len(table.block_ids), f"sequence {seq_id} has a block twice: {table.block_ids}"
            for block_id in table.block_ids[table.num_committed + 1 :]:
                # The block right behind the committed ones may be a found one that is about to be copied.
                assert owners[block_id] == 1, f"block {block_id} of sequence {seq_id} is shared but not committed"

    def _matched(self, block_ids: list[int], num_tokens: int) -> PrefixMatch:
        ref_counts = self._pool.ref_counts
        return PrefixMatch(block_ids, num_tokens, sum(1 for block_id in block_ids if ref_counts[block_id] == 0))

    def _digest(self, sequence: Sequence, index: int) -> bytes:
        """Digest of the full block at index of a sequence, from its chain, which grows as needed."""
        chain = self._chains.get(sequence.seq_id)
        if chain is None:
            chain = [root_digest(self._weights_version, sequence.adapter_id, sequence.cache_salt)]
            self._chains[sequence.seq_id] = chain
        size = self.block_size
        for block in range(len(chain) - 1, index + 1):
            chain.append(self._cache.chain(chain[block], sequence.token_ids(block * size, (block + 1) * size)))
        return chain[index + 1]

    def _take(self) -> int:
        block_id = self._pool.allocate()
        self._cache.evict(block_id)
        return block_id

    def _release(self, block_id: int) -> None:
        self._pool.release(block_id, keep=self._cache.digests[block_id] is not None)

    def _release_held(self, seq_id: int) -> None:
        for block_id in self._held.pop(seq_id, ()):
            self._release(block_id)
