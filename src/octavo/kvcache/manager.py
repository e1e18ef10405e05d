"""KVCacheManager: the KV cache as the scheduler sees it. Grants blocks to sequences, shares equal beginnings, keeps count."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

from octavo.config.cache import blocks_for
from octavo.kvcache.block_pool import BlockPool
from octavo.kvcache.block_table import NO_GROWTH, BlockTable, Growth
from octavo.kvcache.prefix_cache import PrefixCache, root_digest
from octavo.kvcache.stats import HitTokens, KVCacheStats
from octavo.kvcache.swap import SwapSpace
from octavo.sequence import Sequence


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """Places (blocks, or slots as ~slot) that already hold the first num_tokens tokens of a sequence.

    num_idle  free blocks that they take: those on the free list now, and one for each slot
    """

    places: list[int]
    num_tokens: int
    num_idle: int


class KVCacheManager:
    """Block tables of the live sequences over one pool.

    Life of a sequence here: `match` or `match_parent` (reads only), `allocate` (takes the matched blocks), then per step `grow`
    before and `commit` after, and once `free`. `preempt` takes its table away and remembers what it had; it is matched again
    later. `moves` are what the device must copy in the step that is being planned; `seal_step` ends the planning, and
    `end_step` closes the step, whatever came of it. Several may be sealed and not ended: they run and end in that order.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        enable_prefix_caching: bool = True,
        weights_version: str = "",
        num_swap_blocks: int = 0,
    ) -> None:
        if num_blocks < 1:
            raise ValueError(f"num_blocks is {num_blocks}; a pool needs at least 1")
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self._weights_version = weights_version
        self._pool = BlockPool(num_blocks)
        self._cache = PrefixCache(num_blocks, block_size)
        self.swap = SwapSpace(num_swap_blocks, block_size)
        """Others read it, and give it another size; what it keeps is decided here."""
        self._tables: dict[int, BlockTable] = {}
        self._chains: dict[int, list[bytes]] = {}
        """Root, then the digests of the leading full blocks, per sequence; made as far as they were needed."""
        self._held: dict[int, list[tuple[int, int]]] = {}
        """(source, copy) of this step's block copies, per copying sequence. Sources keep their reference until `end_step`, so
        that no source is the target of another copy: the copies of a step may run in any order."""
        self._sealed: deque[dict[int, list[tuple[int, int]]]] = deque()
        """The same of the steps that are planned and not ended, oldest first."""
        self._query_tokens = 0
        self._hits = HitTokens()

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
        """The longest beginning of a sequence that is there, at most max_tokens. Takes nothing.

        What it kept itself comes first, then whole blocks found by their content: in use, free, or in the swap space.
        """
        limit = min(max_tokens, sequence.num_tokens)
        places, num_tokens = self.swap.places(sequence.seq_id, limit)
        if self.enable_prefix_caching:
            num_full = num_tokens // self.block_size
            found: list[int] = []
            for index in range(num_full, limit // self.block_size):
                place = self._find(self._digest(sequence, index))
                if place is None:
                    break
                found.append(place)
            if found:
                places = places[:num_full] + found
                num_tokens = len(places) * self.block_size
        return self._matched(places, num_tokens)

    def match_parent(self, parent_id: int, num_tokens: int) -> PrefixMatch:
        """The parent's first num_tokens (all computed), its partly filled last block included. Takes nothing."""
        return self._matched(self._filled_blocks(parent_id, num_tokens), num_tokens)

    def cost(self, match: PrefixMatch, first: int, num_tokens: int) -> int:
        """Blocks that leave the free list until a sequence with this match, writing from position `first`, has num_tokens."""
        num_matched = len(match.places)
        copied = 1 if first // self.block_size < num_matched else 0
        return match.num_idle + copied + max(0, blocks_for(num_tokens, self.block_size) - num_matched)

    def allocate(self, sequence: Sequence, match: PrefixMatch, first: int) -> None:
        """Give the sequence a table of the matched blocks, shared; it will compute from position `first` on.

        What is in the swap space gets fresh blocks, and the moves into them go into this step's list.
        """
        assert sequence.seq_id not in self._tables, f"sequence {sequence.seq_id} has blocks already"
        if sequence.num_cached_prompt is None:
            self._count_hits(match, min(first, sequence.num_prompt))
            self._query_tokens += sequence.num_prompt
        for place in match.places:
            # All before the first `_take`, which may reuse any block or slot that nobody holds.
            if place >= 0:
                self._pool.share(place)
            else:
                self.swap.hold(~place)
        self._forget_kept(sequence.seq_id)
        block_ids = [place if place >= 0 else self._swap_in(~place) for place in match.places]
        self._tables[sequence.seq_id] = BlockTable(self.block_size, block_ids, first // self.block_size)

    def grow(self, seq_id: int, first: int, last: int) -> Growth | None:
        """Make positions first..last (end exclusive) writable: append blocks, copy a block that others see.

        Returns None, with nothing changed, when the pool has too few free blocks. Only the block of `first` can be one that
        others see: every later block was granted for this sequence alone and is not full yet.
        """
        table, pool = self._tables[seq_id], self._pool
        index = table.write_index(first, pool.ref_counts, self._cache.digests)
        num_covered = len(table.block_ids) * self.block_size
        if index is None and first < num_covered:
            # Written where it is. A preempted fork that kept it loses this one block; copying could need one that is not there.
            self.swap.lose(table.block_ids[first // self.block_size])
        if index is None and last <= num_covered:
            return NO_GROWTH
        num_missing = table.num_missing(last)
        if max(0, num_missing) + (index is not None) > pool.num_free:
            return None
        growth = Growth([self._take() for _ in range(num_missing)])
        table.block_ids += growth.new_block_ids
        if index is not None:
            copy = self._take()
            source = table.replace(index, copy)
            self._held.setdefault(seq_id, []).append((source, copy))
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
        self._forget_kept(seq_id)
        self.free_table(seq_id)

    def free_table(self, seq_id: int) -> None:
        """Give back the block table of a sequence that will be matched again, if it has one."""
        self._release_held(seq_id)
        table = self._tables.pop(seq_id, None)
        if table is not None:
            self._release_all(table.block_ids)

    def preempt(self, sequence: Sequence, to_swap: bool) -> bool:
        """Give back all blocks of a sequence that is to go on later.

        to_swap  remember which of them hold its sequence.num_computed tokens, and move such a block to the swap space before it
                 is reused. Otherwise, or without slots for all of them, only what the prefix cache still finds will be there.
        Returns whether they will be moved.
        """
        seq_id = sequence.seq_id
        places = self._filled_blocks(seq_id, sequence.num_computed)
        to_swap = to_swap and self.swap.has_room_for(places)
        if places and to_swap:
            self.swap.keep(seq_id, places, sequence.num_computed)
        self.free_table(seq_id)
        return to_swap

    def promise(self, sequence: Sequence, match: PrefixMatch, to_swap: bool) -> None:
        """A sequence that must wait for more blocks is to find this match again: its free blocks are reused last of all, and
        if to_swap and there are slots, they are moved there rather than lost."""
        for place in reversed(match.places):
            if place >= 0 and self._pool.ref_counts[place] == 0:
                self._pool.share(place)
                self._pool.release(place, keep=True)
        is_kept = bool(self.swap.places(sequence.seq_id, 1)[0])
        if to_swap and match.places and not is_kept and self.swap.has_room_for(match.places):
            self.swap.keep(sequence.seq_id, match.places, match.num_tokens)

    def moves(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """(out, in): this step's (block, slot) pairs to the swap space and back. All moves out come first."""
        return self.swap.moves_out, self.swap.moves_in

    def seal_step(self) -> None:
        """The step is planned: what it reads stays as it is until its `end_step`, what is asked for now is for the next."""
        self._sealed.append(self._held)
        self._held = {}
        self.swap.seal_step()

    def end_step(self, lost_slots: Iterable[int] = (), lost_blocks: Iterable[int] = ()) -> None:
        """The moves and block copies of the oldest sealed step have been made, or will never be; without a sealed one, those of
        the step that is being planned.

        lost_slots, lost_blocks  those that this step's moves should have filled, and did not; the caller takes such blocks from
                                 the sequences that run with them
        """
        if not self._sealed:
            self.seal_step()
        for slot in lost_slots:
            self.swap.lose(~slot)
        for block_id in lost_blocks:
            self.swap.lose_move_in(block_id)
            self._cache.evict(block_id)
        self.swap.end_step()
        for held in self._sealed.popleft().values():
            for source, _ in held:
                self._release(source)

    def empty_copy(self, num_blocks: int, block_size: int, num_swap_blocks: int) -> KVCacheManager:
        """A manager of another pool for the same weights, without sequences; counters of tokens go on from here."""
        copy = KVCacheManager(num_blocks, block_size, self.enable_prefix_caching, self._weights_version, num_swap_blocks)
        copy._query_tokens, copy._hits = self._query_tokens, replace(self._hits)
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
            hit_tokens=self._hits.total,
            hits=replace(self._hits),
            num_swap_blocks=self.swap.num_slots,
            num_swapped=self.swap.num_used,
            num_swap_cached=self.swap.num_cached,
            swap_high_water=self.swap.high_water,
        )

    def check_integrity(self) -> None:
        """Raise AssertionError, saying what is wrong, unless each reference has an owner and each free block is in the list."""
        self._pool.check_integrity()
        self._cache.check_integrity()
        self.swap.check_integrity()
        both = self.swap.seq_ids() & self._tables.keys()
        assert not both, f"sequences {both} keep blocks beside their table"
        owners = Counter(block_id for table in self._tables.values() for block_id in table.block_ids)
        owners.update(source for step in (self._held, *self._sealed) for held in step.values() for source, _ in held)
        for block_id, count in enumerate(self._pool.ref_counts):
            assert count == owners[block_id], f"block {block_id} has ref count {count} but {owners[block_id]} owners"
        for seq_id, table in self._tables.items():
            assert len(set(table.block_ids)) == len(table.block_ids), f"sequence {seq_id} has a block twice: {table.block_ids}"
            for block_id in table.block_ids[table.num_committed + 1 :]:
                # The block right behind the committed ones may be a found one that is about to be copied.
                assert owners[block_id] == 1, f"block {block_id} of sequence {seq_id} is shared but not committed"

    def _matched(self, places: list[int], num_tokens: int) -> PrefixMatch:
        ref_counts = self._pool.ref_counts
        return PrefixMatch(places, num_tokens, sum(1 for place in places if place < 0 or ref_counts[place] == 0))

    def _filled_blocks(self, seq_id: int, num_tokens: int) -> list[int]:
        """The blocks that hold a sequence's first num_tokens now, before this step's copies are made."""
        sources = {copy: source for source, copy in self._held.get(seq_id, ())}
        block_ids = self._tables[seq_id].block_ids[: blocks_for(num_tokens, self.block_size)]
        return [sources.get(block_id, block_id) for block_id in block_ids] if sources else block_ids

    def _find(self, digest: bytes) -> int | None:
        """The place of this content: a block, else a slot, else None."""
        block_id = self._cache.find(digest)
        if block_id is not None:
            return block_id
        slot = self.swap.find(digest)
        return None if slot is None else ~slot

    def _swap_in(self, slot: int) -> int:
        """A fresh block that this step fills from the (held) slot; it can be found at once, for all who read it come later."""
        block_id = self._take()
        digest = self.swap.move_in(slot, block_id)
        if digest is not None:
            self._cache.insert(digest, block_id)
        return block_id

    def _count_hits(self, match: PrefixMatch, num_tokens: int) -> None:
        """Add the first num_tokens of a match to the statistics."""
        for index, place in enumerate(match.places):
            count = min(self.block_size, num_tokens - index * self.block_size)
            if count <= 0:
                return
            if place < 0:
                self._hits.swapped += count
            elif self._pool.ref_counts[place]:
                self._hits.running += count
            else:
                self._hits.freed += count

    def _digest(self, sequence: Sequence, index: int) -> bytes:
        """Digest of the full block at index of a sequence, from its chain, which grows as needed."""
        chain = self._chains.get(sequence.seq_id)
        if chain is None:
            chain = [root_digest(self._weights_version, sequence.adapter_id, sequence.request.cache_salt)]
            self._chains[sequence.seq_id] = chain
        size = self.block_size
        for block in range(len(chain) - 1, index + 1):
            chain.append(self._cache.chain(chain[block], sequence.token_ids(block * size, (block + 1) * size)))
        return chain[index + 1]

    def _take(self) -> int:
        block_id = self._pool.allocate()
        self.swap.vacate(block_id, self._cache.digests[block_id])
        self._cache.evict(block_id)
        return block_id

    def _release(self, block_id: int) -> None:
        keep = self._cache.digests[block_id] is not None or self.swap.owns(block_id)
        self._pool.release(block_id, keep=keep)

    def _release_all(self, block_ids: list[int]) -> None:
        """Last block first: of one sequence's blocks the later ones are reused first, for without its beginning an end is no
        hit."""
        for block_id in reversed(block_ids):
            self._release(block_id)

    def _release_held(self, seq_id: int) -> None:
        for source, _ in self._held.pop(seq_id, ()):
            self._release(source)

    def _forget_kept(self, seq_id: int) -> None:
        """What the sequence kept is of no more use to it; free blocks that nobody can find now are reused first."""
        for block_id in self.swap.forget(seq_id):
            if self._pool.ref_counts[block_id] == 0 and self._cache.digests[block_id] is None:
                self._pool.share(block_id)
                self._pool.release(block_id, keep=False)
