"""Preemption: what a sequence that must give way does with its blocks: have them moved to the swap space, or computed again.

Either way they are given back at once and the sequence waits at the place its policy gives it; see kvcache/swap.py for what
happens to the content. The choice is made per preemption, from costs measured in the running engine and passed in:

    swap       seconds to move a block out and back, from the worker's reports (at first: from its measurement at start)
    recompute  seconds that a token adds to a step, fitted to the steps so far, times the tokens of a block
"""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.kvcache.manager import KVCacheManager, PrefixMatch
from octavo.sequence import Sequence
from octavo.step import StepPlan, SwapReport

_DECAY = 0.98
"""Weight of the past per observation: about the last 50 steps, or moves, count."""
NO_MOVES = SwapReport()
"""Stands for the report of a step without moves; never modified."""
PAUSE_S = 60.0
"""After a failed move nothing new is sent to the swap space for so long: a full disk rarely empties within a step."""


@dataclass(slots=True)
class StepCost:
    """Seconds of a step as a line over its tokens, a least squares fit whose past fades."""

    _n: float = 0.0
    _x: float = 0.0
    _y: float = 0.0
    _xx: float = 0.0
    _xy: float = 0.0

    def observe(self, num_tokens: int, seconds: float) -> None:
        self._n = self._n * _DECAY + 1.0
        self._x = self._x * _DECAY + num_tokens
        self._y = self._y * _DECAY + seconds
        self._xx = self._xx * _DECAY + num_tokens * num_tokens
        self._xy = self._xy * _DECAY + num_tokens * seconds

    @property
    def token_s(self) -> float | None:
        """Seconds that one more token costs; None before any step. At most the mean per token, which it is while all steps
        have the same size."""
        if not self._x:
            return None
        mean = self._y / self._x
        variance = self._n * self._xx - self._x * self._x
        if variance <= 1e-9 * self._xx * self._n:
            return mean
        slope = (self._n * self._xy - self._x * self._y) / variance
        return slope if 0.0 < slope < mean else mean


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

    measured_block_s  seconds to move a block out and back, measured before the first step
    The counters count since the start: sequences for the swap space, moves that failed, bytes moved.
    """

    mode: str = "auto"
    measured_block_s: float | None = None
    num_swap: int = 0
    num_failures: int = 0
    out_bytes: int = 0
    in_bytes: int = 0
    _step_cost: StepCost = field(default_factory=StepCost)
    _out: _Rate = field(default_factory=_Rate)
    _in: _Rate = field(default_factory=_Rate)
    _paused_until_s: float | None = None

    def preempt(self, sequence: Sequence, manager: KVCacheManager, now: float) -> None:
        """Take the blocks of a sequence."""
        self.num_swap += manager.preempt(sequence, self.prefers_swap(manager.block_size, now))

    def promise(self, sequence: Sequence, match: PrefixMatch, manager: KVCacheManager, now: float) -> None:
        """Keep what a waiting sequence was found to start from until it fits: in the swap space, if that is better."""
        manager.promise(sequence, match, self.prefers_swap(manager.block_size, now))

    def prefers_swap(self, block_size: int, now: float) -> bool:
        """Whether a block is better moved than computed again, if there is a slot for it."""
        if self._paused_until_s is not None and now < self._paused_until_s:
            return False
        if self.mode != "auto":
            return self.mode == "swap"
        swap_s, token_s = self.swap_block_s, self.token_s
        return swap_s is not None and token_s is not None and swap_s < token_s * block_size

    @property
    def swap_block_s(self) -> float | None:
        """Seconds to move a block out and back; None when nothing was ever measured."""
        if self._out.block_s is not None and self._in.block_s is not None:
            return self._out.block_s + self._in.block_s
        return self.measured_block_s

    @property
    def token_s(self) -> float | None:
        """Seconds that a token to be computed adds to a step; None before any step."""
        return self._step_cost.token_s

    def observe(self, plan: StepPlan, report: SwapReport, step_s: float, now: float) -> None:
        """A step was settled: learn from what it took."""
        compute_s = step_s - report.out_s - report.in_s
        if plan.sequences and compute_s > 0.0:
            self._step_cost.observe(plan.num_tokens, compute_s)
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
