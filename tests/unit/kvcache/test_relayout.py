"""The KV cache in another layout: who shares what, what moves where, what can still be found."""

from __future__ import annotations

import pytest
from tests.unit.kvcache.test_manager import PROMPT, compute, sequence_of

from octavo.kvcache.manager import KVCacheManager
from octavo.kvcache.relayout import Relaid, RelayoutBuilder
from octavo.kvcache.survey import memory_report
from octavo.sequence import Sequence


def content(manager: KVCacheManager, sequences: list[Sequence]) -> dict[int, tuple[int, int]]:
    """(seq_id, position) that each filled slot stands for; of sequences that share one, the first."""
    slots: dict[int, tuple[int, int]] = {}
    for sequence in sequences:
        table = manager.block_ids(sequence.seq_id)
        for position in range(sequence.num_computed):
            slot = table[position // manager.block_size] * manager.block_size + position % manager.block_size
            slots.setdefault(slot, (sequence.seq_id, position))
    return slots


def relaid(manager: KVCacheManager, sequences: list[Sequence], num_blocks: int, block_size: int) -> Relaid:
    """The finished layout; every token of every sequence was checked to arrive."""
    result = RelayoutBuilder(manager, sequences, num_blocks, block_size).finish()
    before, after = content(manager, sequences), content(result.manager, sequences)
    moved = {target + i: before.get(source + i) for source, target, count in result.moves for i in range(count)}
    for slot, owner in after.items():
        held = moved[slot]
        assert held is not None and held[1] == owner[1], f"slot {slot} holds {held}, not {owner}"
    return result


@pytest.mark.parametrize("block_size", [2, 4, 6, 8, 12, 16, 24, 64])
def test_every_token_arrives_in_any_block_size(block_size: int) -> None:
    manager = KVCacheManager(16, 8)
    sequences = [sequence_of(1, PROMPT), sequence_of(2, [*PROMPT[:17], 1, 2, 3, 4, 5, 6, 7, 8]), sequence_of(3, [9])]
    for sequence in sequences:
        compute(manager, sequence)
    new = relaid(manager, sequences, 40, block_size).manager
    assert new.seq_ids() == {1, 2, 3}
    assert len(new.block_ids(2)) == -(-25 // block_size)


def test_what_was_shared_stays_shared_where_whole_new_blocks_allow_it() -> None:
    manager = KVCacheManager(16, 8)
    sequences = [sequence_of(1, PROMPT), sequence_of(2, [*PROMPT[:19], 7])]
    for sequence in sequences:
        compute(manager, sequence)
    for block_size, num_shared in ((4, 4), (8, 2), (16, 1), (32, 0)):
        new = relaid(manager, sequences, 20, block_size).manager
        assert len(set(new.block_ids(1)) & set(new.block_ids(2))) == num_shared
        assert new.num_blocks - new.num_free == 2 * -(-20 // block_size) - num_shared


def test_running_sequences_can_be_found_under_the_new_hashes() -> None:
    manager = KVCacheManager(16, 8)
    sequence = sequence_of(1, PROMPT)
    compute(manager, sequence)
    new = relaid(manager, [sequence], 20, 4).manager
    assert new.match(sequence_of(2, PROMPT), 20).num_tokens == 20
    assert new.match(sequence_of(3, PROMPT, salt="x"), 20).num_tokens == 0


def test_free_cached_blocks_stay_hits_in_another_number_of_blocks_and_are_dropped_in_another_size() -> None:
    manager = KVCacheManager(16, 8)
    for seq_id in (1, 2):
        compute(manager, sequence_of(seq_id, [seq_id] * 16))
        manager.free(seq_id)
    wider, narrower, resized = (relaid(manager, [], count, size).manager for count, size in ((32, 8), (3, 8), (32, 4)))
    assert [wider.match(sequence_of(10 + seq_id, [seq_id] * 16), 16).num_tokens for seq_id in (1, 2)] == [16, 16]
    assert [narrower.match(sequence_of(10 + seq_id, [seq_id] * 16), 16).num_tokens for seq_id in (1, 2)] == [8, 16], (
        "the oldest went"
    )
    assert [resized.match(sequence_of(10 + seq_id, [seq_id] * 16), 16).num_tokens for seq_id in (1, 2)] == [0, 0]


def test_blocks_granted_ahead_of_the_tokens_are_not_kept() -> None:
    manager = KVCacheManager(16, 8)
    sequence = sequence_of(1, PROMPT)
    manager.allocate(sequence, manager.match(sequence, 20), 0)
    manager.grow(1, 0, 20)
    sequence.num_computed = 5
    assert len(relaid(manager, [sequence], 16, 8).manager.block_ids(1)) == 1


def test_dropping_sequences_makes_room_and_leaves_their_blocks_as_hits() -> None:
    manager = KVCacheManager(16, 8)
    sequences = [sequence_of(seq_id, [seq_id] * 20) for seq_id in (1, 2, 3)]
    for sequence in sequences:
        compute(manager, sequence)
    layout = RelayoutBuilder(manager, sequences, 8, 8)
    assert layout.num_needed == 9 and not layout.fits
    layout.drop(sequences[1])
    assert layout.num_needed == 6 and layout.fits
    new = layout.finish().manager
    assert new.seq_ids() == {1, 3} and new.match(sequences[1], 20).num_tokens == 16
    assert manager.seq_ids() == {1, 2, 3}, "planning changes nothing"


def test_token_counters_go_on_in_the_new_manager() -> None:
    manager = KVCacheManager(16, 8)
    compute(manager, sequence_of(1, PROMPT))
    compute(manager, sequence_of(2, PROMPT))
    before = manager.stats()
    after = relaid(manager, [], 16, 16).manager.stats()
    assert (after.query_tokens, after.hit_tokens) == (before.query_tokens, before.hit_tokens) == (40, 16)


def test_the_report_counts_a_shared_block_once_and_says_what_is_wasted() -> None:
    manager = KVCacheManager(8, 8)
    sequences = [sequence_of(1, PROMPT), sequence_of(2, [*PROMPT[:19], 7])]
    for sequence in sequences:
        compute(manager, sequence)
    compute(manager, sequence_of(3, [5] * 8))
    manager.free(3)
    report = memory_report(manager, sequences, 1024)
    assert (report.num_used, report.num_free, report.num_cached, report.num_cached_free) == (4, 4, 3, 1)
    assert (report.num_slots, report.num_filled, report.waste) == (32, 24, 0.25)
    assert sorted(report.block_map) == sorted("SSuuc...")
    assert [(blocks.num_blocks, blocks.num_shared, blocks.num_filled) for blocks in report.sequences] == [(3, 2, 20)] * 2
    assert report.high_water == 5
