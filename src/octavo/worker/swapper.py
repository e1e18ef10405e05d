"""Swapper: the swap space of a worker: its size, and the moves of a step between KV cache and it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from octavo.ops.interface import Backend
from octavo.step import Relayout, StepPlan, SwapReport
from octavo.worker.swap_file import HEADER_BYTES, SwapFile

_PROBE_BLOCKS = 4


class Swapper:
    """No swap space until `reserve` makes one.

    block_bytes  a block of block_size tokens over all layers
    path         of the file it is to lie in; None: in memory
    clock        returns seconds; it measures, and decides nothing
    """

    def __init__(
        self,
        backend: Backend,
        block_size: int,
        block_bytes: int,
        path: str | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._backend = backend
        self._path = path
        self._file: SwapFile | None = None
        self._num_bytes: int | None = None
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

    def reserve(self, num_slots: int, block_size: int) -> None:
        """Room for at least so many blocks of that size. Raises ConfigError when it cannot be had; all is as it was then."""
        num_bytes = num_slots * self._bytes_of(block_size)
        if num_bytes <= (self._num_bytes or 0):
            return
        if self._num_bytes is not None:
            if self._file is not None:
                self._file.grow(num_bytes)
            self._backend.resize_swap_space(num_bytes, [])
        elif self._path is None:
            self._backend.allocate_swap_space(num_bytes, None, 0)
        else:
            self._file = SwapFile(self._path, num_bytes)
            self._backend.allocate_swap_space(num_bytes, self._file.descriptor, HEADER_BYTES)
        self._num_bytes = num_bytes

    def relay(self, relayout: Relayout) -> dict[int, str]:
        """The KV cache has the new layout, and there is room: move what is kept from slot to slot, give back what is too much.

        Returns the slots that could not be written, with the reason.
        """
        num_bytes, lost = relayout.num_swap_blocks * self._bytes_of(relayout.block_size), {}
        if self._num_bytes is not None and num_bytes < self._num_bytes:
            lost = self._backend.resize_swap_space(num_bytes, relayout.swap_moves)
            if self._file is not None:
                self._file.shrink(num_bytes)
            self._num_bytes = num_bytes
        self._block_bytes, self._block_size = self._bytes_of(relayout.block_size), relayout.block_size
        return lost

    def _bytes_of(self, block_size: int) -> int:
        return self._block_bytes // self._block_size * block_size

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
        return bool(self._backend.swap_out(moves) or self._backend.swap_in(moves))
