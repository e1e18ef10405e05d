"""BlockPool: which KV blocks are in use, by how many, and which free one is reused next."""

from __future__ import annotations

_IN_USE = -1


class BlockPool:
    """Reference counts and the free list of num_blocks blocks, ids 0..num_blocks-1.

    The free list is a doubly linked ring over block ids, held in two integer lists, so that taking its oldest block, adding one
    at either end and removing one from the middle (a prefix-cache hit on a free block) are all O(1). One more entry, the
    sentinel, closes the ring:

        sentinel -> reused next -> ... -> reused last -> sentinel

    Blocks whose content may be asked for again join at the far end (least recently freed is reused first); blocks with
    nothing to remember join at the near end, so they are spent before any cached content is.
    """

    __slots__ = ("_next", "_num_free", "_previous", "_sentinel", "high_water", "ref_counts")

    def __init__(self, num_blocks: int) -> None:
        assert num_blocks >= 0, f"a pool of {num_blocks} blocks"
        self._sentinel = num_blocks
        self._next: list[int] = [*range(1, num_blocks + 1), 0]
        self._previous: list[int] = [num_blocks, *range(num_blocks)]
        self._num_free = num_blocks
        self.ref_counts = [0] * num_blocks
        """Users of each block. For reading only; `allocate`, `share` and `release` change it."""
        self.high_water = 0
        """Most blocks that were ever in use at once."""

    @property
    def num_blocks(self) -> int:
        return self._sentinel

    @property
    def num_free(self) -> int:
        return self._num_free

    @property
    def num_used(self) -> int:
        return self._sentinel - self._num_free

    def allocate(self) -> int:
        """Take the free block that is due for reuse; its count becomes 1. The caller made sure that one is free."""
        block_id = self._next[self._sentinel]
        assert block_id != self._sentinel, "allocate() on an empty free list; check num_free first"
        self._unlink(block_id)
        self.ref_counts[block_id] = 1
        return block_id

    def share(self, block_id: int) -> None:
        """Add one user to a block; a free block leaves the free list, wherever it stands in it."""
        if self.ref_counts[block_id] == 0:
            self._unlink(block_id)
        self.ref_counts[block_id] += 1

    def release(self, block_id: int, *, keep: bool) -> None:
        """Drop one user; the last one puts the block on the free list: at the far end if `keep` (its content may be a hit)."""
        count = self.ref_counts[block_id] - 1
        assert count >= 0, f"block {block_id} was released more often than it was taken"
        self.ref_counts[block_id] = count
        if count:
            return
        after = self._sentinel if keep else self._next[self._sentinel]
        before = self._previous[after]
        self._next[before] = self._previous[after] = block_id
        self._next[block_id], self._previous[block_id] = after, before
        self._num_free += 1

    def free_order(self) -> list[int]:
        """The free blocks, next to be reused first. For tests and integrity checks: O(num_free)."""
        order: list[int] = []
        block_id = self._next[self._sentinel]
        while block_id != self._sentinel and len(order) <= self._sentinel:
            order.append(block_id)
            block_id = self._next[block_id]
        return order

    def check_integrity(self) -> None:
        """Raise AssertionError unless the free list holds exactly the blocks without users, linked the same both ways."""
        order = self.free_order()
        unused = {block_id for block_id, count in enumerate(self.ref_counts) if count == 0}
        assert len(order) == self._num_free, f"free list has {len(order)} blocks, num_free says {self._num_free}"
        assert set(order) == unused, f"free list and unused blocks differ in {sorted(set(order) ^ unused)}"
        before = self._sentinel
        for block_id in [*order, self._sentinel]:
            assert self._previous[block_id] == before, f"free list is not linked back at block {block_id}"
            before = block_id

    def _unlink(self, block_id: int) -> None:
        after, before = self._next[block_id], self._previous[block_id]
        self._next[before], self._previous[after] = after, before
        self._next[block_id] = self._previous[block_id] = _IN_USE
        self._num_free -= 1
        self.high_water = max(self.high_water, self._sentinel - self._num_free)
