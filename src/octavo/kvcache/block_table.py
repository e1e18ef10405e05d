"""BlockTable: where the positions of one sequence lie in the pool."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.config.cache import blocks_for


@dataclass(slots=True)
class BlockTable:
    """Position p lies in block block_ids[p // block_size], at offset p % block_size.

        position    0 ........ 15 | 16 ........ 31 | 32 .. 37 .. 47
        block_ids        9        |        4       |       12          (block_size 16, 38 tokens computed)
                    committed       committed        still being filled

    num_committed  leading blocks that are full, computed, and were offered to the prefix cache: they never change again
    """

    block_size: int
    block_ids: list[int] = field(default_factory=list)
    num_committed: int = 0

    def num_missing(self, num_tokens: int) -> int:
        """Blocks to append before num_tokens positions fit; 0 or less when they fit already."""
        return blocks_for(num_tokens, self.block_size) - len(self.block_ids)

    def write_index(self, position: int, ref_counts: list[int], digests: list[bytes | None]) -> int | None:
        """Index of the block that must be copied before `position` may be written; None when it may be written as it is.

        A block is written only by its single user, and only while no other sequence can find it: ref count 1 and no
        prefix-cache entry (digests[block] is None). A position beyond the table gets a fresh block, which is always fine.
        """
        index = position // self.block_size
        if index >= len(self.block_ids):
            return None
        block_id = self.block_ids[index]
        return index if ref_counts[block_id] > 1 or digests[block_id] is not None else None

    def replace(self, index: int, block_id: int) -> int:
        """Put the private copy block_id in place of the block at index; returns the block that stood there."""
        replaced = self.block_ids[index]
        self.block_ids[index] = block_id
        self.num_committed = min(self.num_committed, index)
        return replaced


@dataclass(frozen=True, slots=True)
class Growth:
    """What `grow` changed: blocks appended to the table, entries replaced in it, block copies the device must make first."""

    new_block_ids: list[int] = field(default_factory=list)
    replaced: list[tuple[int, int]] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)


NO_GROWTH = Growth()
"""Answer of `grow` when the table is long enough and private; shared by all callers, never modified."""
