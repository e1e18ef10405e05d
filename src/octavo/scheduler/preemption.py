"""Preemption: what a sequence that must give way does with its blocks: have them moved to the swap space, or computed again.

Either way they are given back at once and the sequence waits at the place its policy gives it; see kvcache/swap.py for what
happens to the content. The choice is made per preemption, from costs measured in the running engine:

    swap       seconds to move its blocks out and back, from the worker's reports (at first: from its measurement at start)
    recompute  seconds that its tokens add to the steps they are computed in, by the step-time model
"""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.config.cache import blocks_for
from octavo.kvcache.manager import KVCacheManager, PrefixMatch
from octavo.scheduler.step_time import StepTimeModel
from octavo.sequence import Sequence
from octavo.step import StepPlan, SwapReport

_DECAY = 0.98
"""Weight of the past per observation: about the last 50 steps, or moves, count."""
NO_MOVES = SwapReport()
"""Stands for the report of a step without moves; never modified."""
PAUSE_S = 60.0
"""After a failed move nothing new is sent to the swap space for so long: a full disk rarely empties within a step."""


@dataclass(slots=True)
class _Rate:
    """Seconds per block, of moves whose past fades."""

    blocks: float = 0.0
    seconds: float = 0.0

    def observe(self, num_blocks: int, seconds: float) -> None:
        self.blocks = self.blocks * _DECAY + num_blocks
        self.seconds = self.seconds * _DECAY + seconds

    @property
    def block_s(self) -> float | None:
        return self.seconds / self.blocks if self.blocks else None


@dataclass(slots=True)
class Preemption:
    """mode: auto, recompute or swap; the scheduler sets it.

    step_time         the estimator's
    measured_block_s  seconds to move a block out and back, measured before the first step
    The counters count since the start: sequences for the swap space, moves that failed, bytes moved.
    """

    step_time: StepTimeModel
    mode: str = "auto"
    measured_block_s: float | None = None
    num_swap: int = 0
    num_failures: int = 0
    out_bytes: int = 0
    in_bytes: int = 0
    _out: _Rate = field(default_factory=_Rate)
    _in: _Rate = field(default_factory=_Rate)
    _paused_until_s: float | None = None

    def preempt(self, sequence: Sequence, manager: KVCacheManager, now: float) -> None:
        """Take the blocks of a sequence."""
        is_kept = not sequence.reads_every_row and self.prefers_swap(sequence.num_computed, manager.block_size, now)
        self.num_swap += manager.preempt(sequence, is_kept)

    def promise(self, sequence: Sequence, match: PrefixMatch, manager: KVCacheManager, now: float) -> None:
        """Keep what a waiting sequence was found to start from until it fits: in the swap space, if that is better."""
        manager.promise(sequence, match, self.prefers_swap(match.num_tokens, manager.block_size, now))

    def prefers_swap(self, num_tokens: int, block_size: int, now: float) -> bool:
        """Whether the first num_tokens of a sequence are better moved than computed again, if there are slots for them."""
        if self._paused_until_s is not None and now < self._paused_until_s:
            return False
        if self.mode != "auto":
            return self.mode == "swap"
        swap_s = self.swap_block_s
        if swap_s is None or not self.step_time.num_observed:
            return False
        return swap_s * blocks_for(num_tokens, block_size) < self.step_time.prefill_s(num_tokens, 0)

    @property
    def swap_block_s(self) -> float | None:
        """Seconds to move a block out and back; None when nothing was ever measured."""
        if self._out.block_s is not None and self._in.block_s is not None:
            return self._out.block_s + self._in.block_s
        return self.measured_block_s

    def observe(self, plan: StepPlan, report: SwapReport, now: float) -> None:
        """A step was settled: learn from what its moves took."""
        self.out_bytes += report.out_bytes
        self.in_bytes += report.in_bytes
        if report.lost_slots or report.lost_blocks:
            self.num_failures += len(report.lost_slots) + len(report.lost_blocks)
            self._paused_until_s = now + PAUSE_S
            return
        if plan.swap_out:
            self._out.observe(len(plan.swap_out), report.out_s)
        if plan.swap_in:
            self._in.observe(len(plan.swap_in), report.in_s)
