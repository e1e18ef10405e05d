"""The pool: counts and the order of reuse."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.kvcache.block_pool import BlockPool

CALLS = st.sampled_from(["take", "share", "drop", "forget"])


def test_a_fresh_pool_hands_out_every_block_once() -> None:
    pool = BlockPool(4)
    assert sorted(pool.allocate() for _ in range(4)) == [0, 1, 2, 3]
    assert pool.num_free == 0 and pool.num_used == 4 and pool.high_water == 4
    pool.check_integrity()


def test_allocate_on_an_empty_pool_is_refused() -> None:
    pool = BlockPool(1)
    pool.allocate()
    with pytest.raises(AssertionError, match="empty free list"):
        pool.allocate()


def test_a_pool_without_blocks_has_none_free() -> None:
    pool = BlockPool(0)
    assert pool.num_free == pool.num_used == 0 and pool.free_order() == []
    pool.check_integrity()


def test_kept_blocks_are_reused_in_the_order_they_were_freed() -> None:
    pool = BlockPool(3)
    blocks = [pool.allocate() for _ in range(3)]
    for block_id in (blocks[1], blocks[2], blocks[0]):
        pool.release(block_id, keep=True)
    assert [pool.allocate() for _ in range(3)] == [blocks[1], blocks[2], blocks[0]]


def test_blocks_with_nothing_to_keep_are_reused_before_kept_ones() -> None:
    pool = BlockPool(3)
    first, second, third = (pool.allocate() for _ in range(3))
    pool.release(first, keep=True)
    pool.release(second, keep=False)
    pool.release(third, keep=True)
    assert pool.free_order() == [second, first, third]


def test_sharing_a_free_block_takes_it_from_the_middle_of_the_free_list() -> None:
    pool = BlockPool(5)
    pool.share(2)
    assert pool.free_order() == [0, 1, 3, 4] and pool.ref_counts[2] == 1
    pool.check_integrity()
    pool.release(2, keep=True)
    assert pool.free_order() == [0, 1, 3, 4, 2]


def test_a_shared_block_is_free_only_after_its_last_user() -> None:
    pool = BlockPool(2)
    block_id = pool.allocate()
    pool.share(block_id)
    pool.release(block_id, keep=True)
    assert pool.num_free == 1
    pool.release(block_id, keep=True)
    assert pool.num_free == 2
    with pytest.raises(AssertionError, match="released more often"):
        pool.release(block_id, keep=True)


def test_integrity_check_notices_a_count_that_does_not_fit_the_free_list() -> None:
    pool = BlockPool(3)
    pool.ref_counts[1] = 1
    with pytest.raises(AssertionError, match=r"differ in \[1\]"):
        pool.check_integrity()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.lists(st.tuples(CALLS, st.integers(0, 5)), max_size=60))
def test_any_order_of_calls_gives_the_counts_and_order_of_a_plain_list(num_blocks: int, calls: list[tuple[str, int]]) -> None:
    pool, order, counts = BlockPool(num_blocks), list(range(num_blocks)), [0] * num_blocks
    for call, number in calls:
        block_id = number % num_blocks
        if call == "take" and order:
            taken = order.pop(0)
            counts[taken] = 1
            assert pool.allocate() == taken
        elif call == "share":
            if counts[block_id] == 0:
                order.remove(block_id)
            counts[block_id] += 1
            pool.share(block_id)
        elif call in ("drop", "forget") and counts[block_id]:
            counts[block_id] -= 1
            if counts[block_id] == 0:
                order.insert(len(order) if call == "drop" else 0, block_id)
            pool.release(block_id, keep=call == "drop")
        assert pool.free_order() == order and pool.ref_counts == counts
        pool.check_integrity()
