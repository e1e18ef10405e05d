"""Moves of a step: out before in, once per step whatever is tried again, and failures that name what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from octavo.step import StepPlan
from octavo.worker.swapper import Swapper


class Space:
    """A swap space that remembers calls and fails for `bad` slots (written) and blocks (filled)."""

    slot_bytes = 100

    def __init__(self, bad_slots: tuple[int, ...] = (), bad_blocks: tuple[int, ...] = ()) -> None:
        self.calls: list[tuple[str, list[tuple[int, int]]]] = []
        self.bad_slots, self.bad_blocks = bad_slots, bad_blocks

    def out(self, moves: Sequence[tuple[int, int]]) -> dict[int, str]:
        self.calls.append(("out", list(moves)))
        return {slot: "no space left" for _, slot in moves if slot in self.bad_slots}

    def into(self, moves: Sequence[tuple[int, int]]) -> dict[int, str]:
        self.calls.append(("in", list(moves)))
        return {block: "input/output error" for block, _ in moves if block in self.bad_blocks}


def swapper_of(space: Space) -> Swapper:
    ticks = count()
    return Swapper(space, 8, clock=lambda: float(next(ticks)))  # type: ignore[arg-type]


def test_moves_out_come_first_and_are_counted_in_bytes_and_seconds() -> None:
    space = Space()
    report = swapper_of(space).run(StepPlan(1, [], swap_out=[(3, 0), (4, 1)], swap_in=[(3, 7)]))
    assert space.calls == [("out", [(3, 0), (4, 1)]), ("in", [(3, 7)])]
    assert report is not None
    assert (report.out_bytes, report.out_s, report.in_bytes, report.in_s) == (200, 1.0, 100, 1.0)


def test_a_step_tried_again_moves_nothing_twice() -> None:
    space = Space(bad_blocks=(3,))
    swapper = swapper_of(space)
    plan = StepPlan(1, [], swap_out=[(3, 0)], swap_in=[(3, 7)])
    first = swapper.run(plan)
    assert swapper.run(plan) is first and len(space.calls) == 2
    assert swapper.run(StepPlan(1, [])) is None and swapper.lost_blocks == {3}
    assert swapper.run(StepPlan(2, [])) is None and swapper.lost_blocks == set()


def test_what_was_lost_on_the_way_out_is_not_read_back_and_copies_of_it_are_lost_too() -> None:
    space = Space(bad_slots=(1,))
    swapper = swapper_of(space)
    plan = StepPlan(1, [], [(5, 6), (8, 9)], swap_out=[(3, 0), (4, 1)], swap_in=[(5, 1), (2, 0)])
    report = swapper.run(plan)
    assert report is not None and report.lost_slots == {1: "no space left"} and report.lost_blocks == {5: "no space left"}
    assert space.calls[1] == ("in", [(2, 0)]) and swapper.lost_blocks == {5, 6}
    assert (report.out_bytes, report.in_bytes) == (100, 100)


def test_the_cost_of_a_block_is_measured_unless_there_is_no_space_or_it_fails() -> None:
    assert swapper_of(Space()).measure(num_blocks=2, num_slots=9) == 0.5
    assert swapper_of(Space()).measure(num_blocks=2, num_slots=0) is None
    assert swapper_of(Space(bad_slots=(0,))).measure(num_blocks=2, num_slots=9) is None
