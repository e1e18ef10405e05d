"""Swapper: what a worker's swap space is used for: the moves of a step, another size, how long a move takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from octavo.step import Relayout, StepPlan, SwapReport
from octavo.worker.swap_store import SwapStore

_PROBE_BLOCKS = 4


class Swapper:
    """space has slots for blocks of block_size tokens, and no room until `reserve` makes some.

    clock        returns seconds; it measures, and decides nothing
    """

    def __init__(self, space: SwapStore, block_size: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._space = space
        self._block_size = block_size
        self._clock = clock
        self._step_id: int | None = None
        self._report: SwapReport | None = None
        self.lost_blocks: set[int] = set()
        """Blocks that this step's moves should have filled and did not, and copies of them: not to be read."""

    def run(self, plan: StepPlan) -> SwapReport | None:
        """All moves out, then all moves in; None when there are none.

        A plan whose step was begun before (it failed and is tried again, whole or in parts) is not moved a second time: blocks
        that were moved out may hold something else by now. It gets the report of the first time.
        """
        if plan.step_id == self._step_id:
            return self._report if plan.swap_out or plan.swap_in else None
        self._step_id, self._report, self.lost_blocks = plan.step_id, None, set()
        if not plan.swap_out and not plan.swap_in:
            return None
        report = SwapReport()
        started_s = self._clock()
        if plan.swap_out:
            report.lost_slots = self._space.out(plan.swap_out)
        out_s = self._clock()
        if plan.swap_in:
            good = [(block, slot) for block, slot in plan.swap_in if slot not in report.lost_slots]
            report.lost_blocks = self._space.into(good)
            report.lost_blocks.update(
                (block, report.lost_slots[slot]) for block, slot in plan.swap_in if slot in report.lost_slots
            )
        report.out_bytes = (len(plan.swap_out) - len(report.lost_slots)) * self._space.slot_bytes
        report.in_bytes = (len(plan.swap_in) - len(report.lost_blocks)) * self._space.slot_bytes
        report.out_s, report.in_s = out_s - started_s, self._clock() - out_s
        if report.lost_blocks:
            copies = {target for source, target in plan.block_copies if source in report.lost_blocks}
            self.lost_blocks = {*report.lost_blocks, *copies}
        self._report = report
        return report

    def reserve(self, num_slots: int, block_size: int) -> None:
        """Room for at least so many blocks of that size. Raises ConfigError when it cannot be had; all is as it was then."""
        num_bytes = num_slots * self._bytes_of(block_size)
        if num_bytes > self._space.num_bytes:
            self._space.resize(num_bytes)

    def relay(self, relayout: Relayout) -> dict[int, str]:
        """The KV cache has the new layout, and there is room: move what is kept from slot to slot, give back what is too much.

        Returns the slots that could not be written, with the reason.
        """
        self._space.slot_bytes, self._block_size = self._bytes_of(relayout.block_size), relayout.block_size
        num_bytes, lost = relayout.num_swap_blocks * self._space.slot_bytes, {}
        if num_bytes < self._space.num_bytes:
            lost = self._space.shift(relayout.swap_moves)
            self._space.resize(num_bytes)
        return lost

    def _bytes_of(self, block_size: int) -> int:
        return self._space.slot_bytes // self._block_size * block_size

    def measure(self, num_blocks: int, num_slots: int) -> float | None:
        """Seconds that a block takes out and back; None if the space does not work. The space must be empty.

        A block gets back what it holds, so that the cache may be in use.
        """
        count = min(_PROBE_BLOCKS, num_blocks, num_slots)
        moves = [(index, index) for index in range(count)]
        if not moves or self._failed(moves):  # the first round touches the memory for the first time
            return None
        started_s = self._clock()
        return None if self._failed(moves) else (self._clock() - started_s) / count

    def _failed(self, moves: Sequence[tuple[int, int]]) -> bool:
        return bool(self._space.out(moves) or self._space.into(moves))
