"""Swapper: makes the moves of a step between KV cache and swap space, and says what became of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from octavo.ops.interface import Backend
from octavo.step import StepPlan, SwapReport

_PROBE_BLOCKS = 4


class Swapper:
    """block_bytes: a block of block_size tokens over all layers. `clock` returns seconds; it measures, and decides nothing."""

    def __init__(
        self, backend: Backend, block_size: int, block_bytes: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._backend = backend
        self._block_size = block_size
        self._block_bytes = block_bytes
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
            report.lost_slots = self._backend.swap_out(plan.swap_out)
        out_s = self._clock()
        if plan.swap_in:
            good = [(block, slot) for block, slot in plan.swap_in if slot not in report.lost_slots]
            report.lost_blocks = self._backend.swap_in(good)
            report.lost_blocks.update(
                (block, report.lost_slots[slot]) for block, slot in plan.swap_in if slot in report.lost_slots
            )
        report.out_bytes = (len(plan.swap_out) - len(report.lost_slots)) * self._block_bytes
        report.in_bytes = (len(plan.swap_in) - len(report.lost_blocks)) * self._block_bytes
        report.out_s, report.in_s = out_s - started_s, self._clock() - out_s
        if report.lost_blocks:
            copies = {target for source, target in plan.block_copies if source in report.lost_blocks}
            self.lost_blocks = {*report.lost_blocks, *copies}
        self._report = report
        return report

    def resize(self, block_size: int) -> None:
        """The KV cache has blocks of another size now; what was in the swap space is not asked for any more."""
        self._block_bytes = self._block_bytes * block_size // self._block_size
        self._block_size = block_size

    def measure(self, num_blocks: int, num_slots: int) -> float | None:
        """Seconds that a block takes out and back, measured on the still empty cache; None if the space does not work."""
        count = min(_PROBE_BLOCKS, num_blocks, num_slots)
        moves = [(index, index) for index in range(count)]
        if not moves or self._failed(moves):  # the first round touches the memory for the first time
            return None
        started_s = self._clock()
        return None if self._failed(moves) else (self._clock() - started_s) / count

    def _failed(self, moves: Sequence[tuple[int, int]]) -> bool:
        return bool(self._backend.swap_out(moves) or self._backend.swap_in(moves))
