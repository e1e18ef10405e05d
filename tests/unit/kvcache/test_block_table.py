"""Block tables: positions to blocks, and which block must be copied before a write."""

from __future__ import annotations

import pytest

from octavo.config.cache import blocks_for
from octavo.kvcache.block_table import BlockTable


@pytest.mark.parametrize(("num_tokens", "expected"), [(0, 0), (1, 1), (15, 1), (16, 1), (17, 2), (32, 2), (33, 3)])
def test_blocks_for_rounds_up(num_tokens: int, expected: int) -> None:
    assert blocks_for(num_tokens, 16) == expected


def test_missing_blocks_are_counted_from_what_the_table_has() -> None:
    table = BlockTable(16, [9, 4])
    assert [table.num_missing(n) for n in (1, 32, 33, 65)] == [-1, 0, 1, 3]


def test_a_private_block_without_a_digest_is_written_in_place() -> None:
    assert BlockTable(8, [2, 0]).write_index(11, [1, 0, 1], [None, None, b"digest of block 2"]) is None


def test_a_block_with_two_users_is_copied_before_a_write() -> None:
    assert BlockTable(8, [2, 0]).write_index(11, [2, 0, 1], [None, None, None]) == 1


def test_a_block_that_can_be_found_is_copied_before_a_write() -> None:
    assert BlockTable(8, [2, 0]).write_index(15, [1, 0, 1], [b"digest", None, None]) == 1


def test_a_position_behind_the_table_needs_no_copy() -> None:
    assert BlockTable(8, [2, 0]).write_index(16, [2, 2, 2], [None, None, None]) is None


def test_replacing_a_committed_block_makes_it_uncommitted() -> None:
    table = BlockTable(8, [5, 6, 7], num_committed=3)
    assert table.replace(2, 1) == 7
    assert table.block_ids == [5, 6, 1] and table.num_committed == 2
