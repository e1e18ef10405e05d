"""The manager: sharing, copy on write, commit, eviction, and books that agree."""

from __future__ import annotations

import pytest
from tests.fakes import make_sequence

from octavo.kvcache.block_table import NO_GROWTH
from octavo.kvcache.manager import KVCacheManager
from octavo.sequence import Sequence

PROMPT = list(range(100, 120))


def sequence_of(seq_id: int, prompt: list[int], salt: str = "", adapter_id: str = "") -> Sequence:
    return make_sequence(seq_id, prompt, cache_salt=salt, adapter_id=adapter_id)


def compute(manager: KVCacheManager, sequence: Sequence) -> int:
    """Admit a sequence, compute all its tokens in one settled step; returns the tokens it did not have to compute."""
    match = manager.match(sequence, sequence.num_tokens)
    first = min(match.num_tokens, sequence.num_tokens - 1)
    manager.allocate(sequence, match, first)
    assert manager.grow(sequence.seq_id, first, sequence.num_tokens) is not None
    manager.end_step()
    sequence.num_computed = sequence.num_tokens
    manager.commit(sequence)
    manager.check_integrity()
    return first


def test_an_equal_beginning_is_found_in_whole_blocks() -> None:
    manager = KVCacheManager(8, 8)
    assert compute(manager, sequence_of(1, PROMPT)) == 0
    assert compute(manager, sequence_of(2, [*PROMPT[:19], 7])) == 16
    assert manager.block_ids(1)[:2] == manager.block_ids(2)[:2]
    assert manager.block_ids(1)[2] != manager.block_ids(2)[2]
    stats = manager.stats()
    assert (stats.query_tokens, stats.hit_tokens, stats.num_used, stats.num_cached) == (40, 16, 4, 2)


def test_blocks_are_hits_only_once_their_step_is_settled() -> None:
    manager = KVCacheManager(8, 8)
    first, second = sequence_of(1, PROMPT), sequence_of(2, PROMPT)
    manager.allocate(first, manager.match(first, 20), 0)
    manager.grow(1, 0, 20)
    assert manager.match(second, 20).num_tokens == 0
    first.num_computed = 8
    manager.commit(first)
    assert manager.match(second, 20).num_tokens == 8


def test_a_match_never_exceeds_the_given_number_of_tokens() -> None:
    manager = KVCacheManager(8, 8)
    compute(manager, sequence_of(1, PROMPT))
    assert [manager.match(sequence_of(2, PROMPT), limit).num_tokens for limit in (0, 7, 8, 15, 16, 99)] == [0, 0, 8, 8, 16, 16]


@pytest.mark.parametrize(("salt", "adapter_id"), [("other", ""), ("", "other")])
def test_another_salt_or_adapter_shares_nothing(salt: str, adapter_id: str) -> None:
    manager = KVCacheManager(8, 8)
    compute(manager, sequence_of(1, PROMPT))
    assert manager.match(sequence_of(2, PROMPT, salt, adapter_id), 20).num_tokens == 0


def test_without_prefix_caching_nothing_is_found_or_remembered() -> None:
    manager = KVCacheManager(8, 8, enable_prefix_caching=False)
    compute(manager, sequence_of(1, PROMPT))
    manager.free(1)
    assert compute(manager, sequence_of(2, PROMPT)) == 0
    assert manager.stats().num_cached == 0


def test_freed_blocks_stay_hits_until_they_are_reused() -> None:
    manager = KVCacheManager(4, 8)
    compute(manager, sequence_of(1, PROMPT))
    manager.free(1)
    assert manager.num_free == 4
    assert manager.match(sequence_of(2, PROMPT), 20).num_idle == 2
    compute(manager, sequence_of(3, list(range(30))))
    assert manager.match(sequence_of(2, PROMPT), 20).num_tokens == 0, "all four blocks hold other content now"
    manager.check_integrity()


def test_the_end_of_a_freed_prompt_is_given_up_before_its_beginning() -> None:
    manager = KVCacheManager(4, 8)
    compute(manager, sequence_of(1, list(range(32))))
    manager.free(1)
    compute(manager, sequence_of(2, list(range(50, 58))))
    assert manager.match(sequence_of(3, list(range(32))), 32).num_tokens == 24


def test_a_fully_cached_prompt_gets_its_own_copy_of_the_last_block() -> None:
    manager = KVCacheManager(8, 8)
    compute(manager, sequence_of(1, PROMPT[:16]))
    second = sequence_of(2, PROMPT[:16])
    match = manager.match(second, 16)
    assert manager.cost(match, 15, 16) == 1
    manager.allocate(second, match, 15)
    growth = manager.grow(2, 15, 16)
    assert growth is not None and growth.new_block_ids == []
    (source, copy), (index, replacement) = growth.copies[0], growth.replaced[0]
    assert source == manager.block_ids(1)[1] and (index, replacement) == (1, copy)
    assert manager.block_ids(2) == [manager.block_ids(1)[0], copy]
    manager.end_step()
    second.num_computed = 16
    manager.commit(second)
    found = manager.match(sequence_of(3, PROMPT[:16]), 16).places
    assert found == manager.block_ids(1), "the first of two equal blocks is kept"
    manager.check_integrity()


def test_a_cached_block_is_copied_before_a_write_even_without_another_user() -> None:
    manager = KVCacheManager(8, 8)
    compute(manager, sequence_of(1, PROMPT[:16]))
    cached = manager.block_ids(1)
    manager.free(1)
    second = sequence_of(2, PROMPT[:16])
    match = manager.match(second, 16)
    assert match.num_idle == 2 and manager.cost(match, 15, 16) == 3
    manager.allocate(second, match, 15)
    growth = manager.grow(2, 15, 16)
    assert growth is not None and growth.copies[0][0] == cached[1]
    assert manager.num_free == 5, "the source is held until its copy has been made"
    manager.end_step()
    assert manager.num_free == 6
    assert manager.match(sequence_of(3, PROMPT[:16]), 16).places == cached


def test_a_child_shares_the_parents_partly_filled_block_and_copies_it_when_it_writes() -> None:
    manager = KVCacheManager(8, 8)
    compute(manager, sequence_of(1, PROMPT))
    child = sequence_of(2, PROMPT)
    match = manager.match_parent(1, 20)
    assert match.places == manager.block_ids(1) and manager.cost(match, 19, 21) == 1
    manager.allocate(child, match, 19)
    growth = manager.grow(2, 19, 20)
    assert growth is not None and growth.copies == [(manager.block_ids(1)[2], manager.block_ids(2)[2])]
    manager.end_step()
    assert manager.grow(1, 20, 21) is NO_GROWTH and manager.grow(2, 20, 21) is NO_GROWTH
    manager.check_integrity()


def test_a_parent_that_writes_before_its_child_does_takes_the_copy() -> None:
    manager = KVCacheManager(8, 8)
    compute(manager, sequence_of(1, PROMPT))
    manager.allocate(sequence_of(2, PROMPT), manager.match_parent(1, 20), 19)
    shared = manager.block_ids(1)[2]
    growth = manager.grow(1, 20, 21)
    assert growth is not None and growth.copies == [(shared, manager.block_ids(1)[2])]
    manager.end_step()
    assert manager.block_ids(2)[2] == shared and manager.grow(2, 19, 20) is NO_GROWTH
    manager.check_integrity()


def test_growth_that_does_not_fit_changes_nothing() -> None:
    manager = KVCacheManager(4, 8)
    compute(manager, sequence_of(1, PROMPT))
    before = manager.block_ids(1)
    assert manager.grow(1, 20, 33) is None
    assert manager.block_ids(1) == before and manager.num_free == 1
    manager.check_integrity()


def test_a_copy_counts_as_growth_that_must_fit() -> None:
    manager = KVCacheManager(3, 8)
    compute(manager, sequence_of(1, PROMPT))
    manager.allocate(sequence_of(2, PROMPT), manager.match_parent(1, 20), 19)
    assert manager.grow(2, 19, 20) is None


def test_freeing_twice_or_an_unknown_sequence_does_nothing() -> None:
    manager = KVCacheManager(4, 8)
    compute(manager, sequence_of(1, PROMPT))
    manager.free(1)
    manager.free(1)
    manager.free(77)
    assert manager.num_free == 4
    manager.check_integrity()


def test_freeing_a_sequence_before_its_copy_was_made_releases_source_and_copy() -> None:
    manager = KVCacheManager(4, 8)
    compute(manager, sequence_of(1, PROMPT[:16]))
    manager.free(1)
    second = sequence_of(2, PROMPT[:16])
    manager.allocate(second, manager.match(second, 16), 15)
    manager.grow(2, 15, 16)
    manager.free(2)
    assert manager.num_free == 4
    manager.check_integrity()


def test_integrity_check_names_a_block_without_an_owner() -> None:
    manager = KVCacheManager(4, 8)
    compute(manager, sequence_of(1, PROMPT))
    leaked = manager._tables[1].block_ids.pop()
    with pytest.raises(AssertionError, match=f"block {leaked} has ref count 1 but 0 owners"):
        manager.check_integrity()


def test_generated_tokens_are_found_like_prompt_tokens() -> None:
    manager = KVCacheManager(8, 8)
    first = sequence_of(1, PROMPT[:12])
    first.output_token_ids = PROMPT[12:18]
    compute(manager, first)
    manager.free(1)
    assert manager.match(sequence_of(2, PROMPT), 20).num_tokens == 16
