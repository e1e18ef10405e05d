"""The swap space: what preempted sequences keep, what moves when their blocks are reused, and what is lost."""

from __future__ import annotations

import pytest
from tests.fakes import make_sequence

from octavo.kvcache.manager import KVCacheManager
from octavo.kvcache.report import KeptBlocks
from octavo.kvcache.survey import memory_report
from octavo.kvcache.swap import SlotMoves, SwapSpace
from octavo.sequence import Sequence

SIZE = 8


def sequence_of(seq_id: int, num_tokens: int, stem: int = 0) -> Sequence:
    prompt = [stem * 1000 + position for position in range(num_tokens)]
    return make_sequence(seq_id, prompt)


def admit(manager: KVCacheManager, sequence: Sequence) -> int:
    """Match, allocate and compute all but the last token in one settled step; returns how many tokens were found."""
    match = manager.match(sequence, sequence.num_tokens)
    first = min(match.num_tokens, sequence.num_tokens - 1)
    manager.allocate(sequence, match, first)
    assert manager.grow(sequence.seq_id, first, sequence.num_tokens) is not None
    manager.end_step()
    sequence.num_computed = sequence.num_tokens - 1
    manager.commit(sequence)
    manager.check_integrity()
    return match.num_tokens


def moves(manager: KVCacheManager) -> tuple[int, int]:
    out, into = manager.moves()
    return len(out), len(into)


@pytest.mark.parametrize("caching", [True, False])
def test_only_the_tail_that_others_need_is_moved_and_comes_back(caching: bool) -> None:
    manager = KVCacheManager(6, SIZE, caching, num_swap_blocks=6)
    one, two = sequence_of(1, 40), sequence_of(2, 16, stem=2)
    admit(manager, one)
    table = manager.block_ids(1)
    assert manager.preempt(one, to_swap=True) and manager.num_free == 6
    manager.allocate(two, manager.match(two, 16), 0)
    assert manager.grow(2, 0, 16) is not None
    assert manager.moves()[0] == [(table[4], 0)], "one block was free anyway, the other is the last of the victim"
    manager.end_step()
    match = manager.match(one, 40)
    assert (match.places, match.num_tokens) == ([*table[:4], ~0], 39)
    manager.free(2)
    manager.allocate(one, match, 39)
    assert manager.moves()[1] == [(manager.block_ids(1)[4], 0)]
    assert manager.block_ids(1)[:4] == table[:4]
    manager.end_step()
    manager.check_integrity()
    assert manager.stats().num_swapped == 0


def test_a_beginning_that_two_victims_share_moves_once_each_way() -> None:
    manager = KVCacheManager(8, SIZE, enable_prefix_caching=False, num_swap_blocks=8)
    parent, child = sequence_of(1, 24), sequence_of(2, 24)
    admit(manager, parent)
    manager.allocate(child, manager.match_parent(1, 16), 16)
    assert manager.grow(2, 16, 24) is not None
    child.num_computed = 23
    manager.commit(child)
    assert manager.preempt(child, True) and manager.preempt(parent, True)
    intruder = sequence_of(3, 64, stem=3)
    admit_all = manager.match(intruder, 64)
    manager.allocate(intruder, admit_all, 0)
    assert manager.grow(3, 0, 64) is not None
    assert moves(manager) == (4, 0), "2 shared blocks and one of each"
    manager.end_step()
    manager.free(3)
    manager.allocate(parent, manager.match(parent, 24), 23)
    assert moves(manager) == (0, 3)
    manager.end_step()
    manager.allocate(child, manager.match(child, 24), 23)
    assert moves(manager) == (0, 1), "the shared blocks are back already"
    assert manager.block_ids(1)[:2] == manager.block_ids(2)[:2]
    manager.end_step()
    manager.check_integrity()


def test_without_slots_for_all_of_it_a_sequence_keeps_what_the_prefix_cache_still_finds() -> None:
    manager = KVCacheManager(6, SIZE, num_swap_blocks=4)
    one, two = sequence_of(1, 40), sequence_of(2, 16, stem=2)
    admit(manager, one)
    assert not manager.preempt(one, to_swap=True)
    admit(manager, two)
    assert manager.stats().num_swapped == 0
    assert manager.match(one, 40).num_tokens == 32


def test_slots_promised_to_one_victim_are_not_promised_to_another() -> None:
    space = SwapSpace(3, SIZE)
    assert space.has_room_for([5, 6])
    space.keep(1, [5, 6], 16)
    assert space.has_room_for([5, 6, 7]) and not space.has_room_for([7, 8])
    space.forget(1)
    assert space.has_room_for([7, 8])
    space.check_integrity()


def test_a_hit_on_a_swapped_block_swaps_in_a_copy_and_leaves_the_owner_its_own() -> None:
    manager = KVCacheManager(4, SIZE, num_swap_blocks=4)
    one, intruder = sequence_of(1, 25), sequence_of(2, 32, stem=2)
    admit(manager, one)
    manager.preempt(one, True)
    admit(manager, intruder)
    manager.free(2)
    other = sequence_of(3, 25)
    match = manager.match(other, 25)
    assert match.num_tokens == 24 and all(place < 0 for place in match.places)
    manager.allocate(other, match, 24)
    assert moves(manager) == (0, 3)
    manager.end_step()
    assert manager.stats().hits.swapped == 24
    assert manager.match(one, 25).places[:3] == manager.block_ids(3)
    manager.check_integrity()


def test_a_block_that_still_lies_in_a_slot_is_not_written_a_second_time() -> None:
    manager = KVCacheManager(4, SIZE, num_swap_blocks=8)
    one, intruder = sequence_of(1, 25), sequence_of(2, 32, stem=2)
    admit(manager, one)
    manager.preempt(one, True)
    admit(manager, intruder)
    manager.free(2)
    manager.allocate(one, manager.match(one, 25), 24)
    manager.end_step()
    manager.preempt(one, True)
    intruder.num_computed, intruder.num_cached_prompt = 0, 0
    manager.allocate(intruder, manager.match(intruder, 0), 0)
    assert manager.grow(2, 0, 32) is not None
    assert moves(manager) == (0, 0), "3 full blocks were found in their slots; the tail had nothing computed"
    manager.end_step()
    assert manager.match(one, 25).num_tokens == 24


def test_a_promise_is_kept_while_others_take_blocks() -> None:
    manager = KVCacheManager(6, SIZE, num_swap_blocks=6)
    first = sequence_of(1, 25)
    admit(manager, first)
    manager.free(1)
    waiting = sequence_of(2, 25)
    manager.promise(waiting, manager.match(waiting, 25), to_swap=True)
    admit(manager, sequence_of(3, 48, stem=3))
    assert manager.match(waiting, 25).num_tokens == 24, "moved, not lost"
    manager.free(2)
    manager.check_integrity()
    assert manager.stats().num_swapped == 0


def test_without_a_swap_space_promised_blocks_are_reused_last() -> None:
    manager = KVCacheManager(6, SIZE)
    for seq_id, stem in ((1, 1), (2, 2)):
        admit(manager, sequence_of(seq_id, 17, stem))
    manager.free(1)
    manager.free(2)
    waiting = sequence_of(3, 17, stem=1)
    manager.promise(waiting, manager.match(waiting, 17), to_swap=True)
    admit(manager, sequence_of(4, 32, stem=4))
    assert manager.match(waiting, 17).num_tokens == 16
    assert manager.match(sequence_of(5, 17, stem=2), 17).num_tokens == 0


def test_a_lost_slot_costs_its_owners_what_stands_behind_it() -> None:
    manager = KVCacheManager(6, SIZE, num_swap_blocks=6)
    one = sequence_of(1, 40)
    admit(manager, one)
    manager.preempt(one, True)
    intruder = sequence_of(2, 32, stem=2)
    manager.allocate(intruder, manager.match(intruder, 32), 0)
    assert manager.grow(2, 0, 32) is not None
    out, _ = manager.moves()
    assert len(out) == 3
    manager.end_step(lost_slots=[out[0][1]])
    manager.check_integrity()
    assert manager.match(one, 40).num_tokens == 32, "the last block was lost"


def test_a_block_that_could_not_be_filled_is_found_neither_there_nor_in_its_slot() -> None:
    manager = KVCacheManager(4, SIZE, num_swap_blocks=4)
    one, intruder = sequence_of(1, 25), sequence_of(2, 32, stem=2)
    admit(manager, one)
    manager.preempt(one, True)
    admit(manager, intruder)
    manager.free(2)
    manager.allocate(one, manager.match(one, 25), 24)
    _, into = manager.moves()
    manager.end_step(lost_blocks=[into[1][0]])
    manager.free_table(1)
    manager.check_integrity()
    assert manager.match(one, 25).num_tokens == 8


def test_the_memory_report_shows_what_is_kept_where() -> None:
    manager = KVCacheManager(6, SIZE, enable_prefix_caching=False, num_swap_blocks=6)
    one, two = sequence_of(1, 40), sequence_of(2, 16, stem=2)
    admit(manager, one)
    table = manager.block_ids(1)
    manager.preempt(one, True)
    admit(manager, two)
    report = memory_report(manager, [two], 100, [one, two])
    assert (report.num_swap_blocks, report.num_swapped, report.swap_high_water, report.num_used) == (6, 1, 1, 2)
    assert report.kept == [KeptBlocks("r1", 0, 40, 39, table[:4], [0])]
    assert [sequence.request_id for sequence in report.sequences] == ["r2"]
    assert sorted(report.block_map) == ["k"] * 4 + ["u"] * 2


def test_aborting_a_swapped_sequence_gives_its_slots_back() -> None:
    manager = KVCacheManager(4, SIZE, enable_prefix_caching=False, num_swap_blocks=4)
    one = sequence_of(1, 25)
    admit(manager, one)
    manager.preempt(one, True)
    admit(manager, sequence_of(2, 32, stem=2))
    assert manager.stats().num_swapped == 3
    manager.free(1)
    assert manager.stats().num_swapped == 0
    manager.check_integrity()


def swapped(manager: KVCacheManager, *lengths: int) -> list[Sequence]:
    """Sequences of these lengths, all of whose computed tokens lie in slots, and the pool free again."""
    sequences = [sequence_of(seq_id, length, stem=seq_id) for seq_id, length in enumerate(lengths, 1)]
    for sequence in sequences:
        admit(manager, sequence)
    for sequence in sequences:
        assert manager.preempt(sequence, True)
    intruder = sequence_of(99, manager.num_blocks * SIZE, stem=99)
    admit(manager, intruder)
    manager.free(99)
    return sequences


def resize(manager: KVCacheManager, num_slots: int, failed: tuple[int, ...] = ()) -> SlotMoves:
    plan = manager.swap.plan_resize(num_slots)
    manager.swap.resize(plan, failed)
    manager.check_integrity()
    assert manager.stats().num_swap_blocks == num_slots
    return plan


@pytest.mark.parametrize("caching", [True, False])
def test_a_smaller_swap_space_moves_what_fits_and_loses_the_ends_first(caching: bool) -> None:
    manager = KVCacheManager(9, SIZE, caching, num_swap_blocks=12)
    one, two = swapped(manager, 33, 25)
    assert manager.stats().num_swapped == 7

    def found() -> list[int]:
        return [manager.match(sequence, sequence.num_tokens).num_tokens for sequence in (one, two)]

    assert resize(manager, 7).lost == [] and found() == [32, 24]
    assert resize(manager, 5).lost and found() == [24, 16]
    assert len(resize(manager, 1).lost) == 4 and sorted(found()) == [0, 8]
    assert resize(manager, 0).moves == [] and found() == [0, 0]
    assert manager.stats().num_swapped == 0


def test_slots_that_are_kept_move_below_the_new_size_and_are_found_there() -> None:
    manager = KVCacheManager(9, SIZE, num_swap_blocks=12)
    one, two = swapped(manager, 33, 25)
    manager.free(1)
    high = [~place for place in manager.match(two, 25).places]
    plan = resize(manager, 3)
    assert plan.lost == [] and {source for source, _ in plan.moves} == {slot for slot in high if slot >= 3}
    match = manager.match(two, 25)
    assert match.num_tokens == 24 and sorted(~place for place in match.places) == [0, 1, 2]
    assert manager.match(sequence_of(3, 25, stem=2), 25).places == match.places, "others find it, too"
    manager.allocate(two, match, 24)
    assert moves(manager) == (0, 3)


def test_a_slot_that_could_not_be_moved_is_lost_with_what_stands_behind_it() -> None:
    manager = KVCacheManager(9, SIZE, enable_prefix_caching=False, num_swap_blocks=12)
    one, two = swapped(manager, 33, 25)
    manager.free(1)
    (_, target), *_ = sorted(manager.swap.plan_resize(3).moves, key=lambda move: move[0])
    resize(manager, 3, (target,))
    assert manager.match(two, 25).num_tokens < 24 and manager.stats().num_swapped < 3


def test_a_larger_swap_space_keeps_all_and_has_more_room() -> None:
    manager = KVCacheManager(9, SIZE, num_swap_blocks=7)
    one, two = swapped(manager, 33, 25)
    three = sequence_of(3, 9, stem=3)
    admit(manager, three)
    assert not manager.swap.has_room_for([0]) and manager.stats().swap_high_water == 7
    assert resize(manager, 9) == SlotMoves(9, [], [])
    assert manager.match(one, 33).num_tokens == 32 and manager.preempt(three, True)
    assert manager.stats().swap_high_water == 7, "those that were in use when it got its size"


def test_hits_on_slots_that_nobody_keeps_survive_where_they_lie() -> None:
    manager = KVCacheManager(9, SIZE, num_swap_blocks=12)
    swapped(manager, 33, 25)
    manager.free(1)
    manager.free(2)
    assert manager.stats().num_swap_cached == 7
    resize(manager, 4)
    assert manager.stats().num_swap_cached == 4 and manager.match(sequence_of(5, 33, stem=1), 33).num_tokens == 32
