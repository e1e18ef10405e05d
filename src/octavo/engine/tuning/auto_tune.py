"""AutoTuner: settings by rule, from what a second of load at a time looked like. Pure: observations in, changes out, no clock.

Rules, in this order; each must hold HOLD observations in a row, and after a change nothing happens for COOL_DOWN of them:

    thrashing  sequences are preempted in a nearly full cache and computed again     -> what the tuner added is taken back:
               swap if that was excluded and there is a space for it, else admission as it was, else fewer seats (max_num_seqs)
    jerky      the slowest steps take many times the median one                      -> smaller prefill chunks
    crowded    requests wait for a seat while the cache has much room                -> seats to clear the queue, on trial, and
               a step that is larger by as much, so that prompts keep their part of it
    held back  requests wait beside free seats for blocks that the running ones will need only later, and there is a swap space
                                                                                     -> admission "eager", on trial
    wasteful   requests wait, the cache is full and much of it is unfilled           -> smaller blocks, on trial
    calm       nobody waits and the cache is half empty, for longer                  -> back to what was configured

A trial is judged by its pace (see pace.py) and taken back if that fell; one at a time. Smaller blocks drop what the prefix
cache remembers of ended requests, so they are only taken where it finds little. Between swapping and computing again
--preemption-mode auto already chooses by measured costs, each time. Blocks larger than configured are never taken; no load was
found that gains from them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, fields, replace

from octavo.config.changes import Changes
from octavo.engine.tuning.pace import Work, pace
from octavo.scheduler.step_time import StepCosts

HOLD = 3
COOL_DOWN = 3
TRIAL = 6
"""Observations before and after a change that are compared."""
CALM_HOLD = 30
BARRED = 120
"""Observations for which what did not do well is not tried again."""

NEARLY_FULL = 0.85
MUCH_ROOM = 0.6
HALF_EMPTY = 0.5
THRASHING = 0.05
"""Preemptions per step whose tokens are computed again."""
STORM = 1.0
"""Preemptions per step of any kind."""
JERKY = 4.0
"""Slowest steps against the median one. With the default step the p99 of the gaps is 2.7 times their median."""
WASTEFUL = 0.06
"""Share of the used slots without a token; at block size 16 a load of short requests has 4%, at 32 twice that."""
FEW_HITS = 0.05
MOSTLY_FULL = 0.8
"""Share of the steps that had no token left."""
LOSS = 0.95
"""A trial whose pace is below LOSS times what it was is undone. One that changed little stands: undoing it would preempt
requests for nothing."""

MIN_SEATS = 4
MIN_CHUNK = 64
MIN_BLOCK = 16
"""Attention reads blocks of 16 tokens and multiples of it in place; at 8 or 24 a decode takes twice as long."""
SEATS_FACTOR = 4
"""Most seats, in multiples of what was configured. The step grows by the added seats, and for no other reason: with prompts of
500 tokens steps of 192 and 256 instead of 96 gave 3 and 4% fewer tokens per second, and gaps of two and three times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """An interval of about a second.

    num_running           most that ran at once
    num_waiting           fewest that waited at the end of a step: above 0, somebody waited all the time
    kv_cache_usage        mean share of the blocks that were used
    full_steps            share of the steps whose tokens were all taken
    recomputes_per_step   those of preemptions_per_step that did not go to the swap space
    median_step_s, slow_step_s   50th and 95th percentile of steps with decodes; 0 without any
    done, costs           what the steps computed, and what of it takes how long; see pace.py
    """

    num_running: int
    num_waiting: int
    kv_cache_usage: float
    waste: float
    hit_rate: float
    full_steps: float
    preemptions_per_step: float
    recomputes_per_step: float
    median_step_s: float
    slow_step_s: float
    done: Work
    costs: StepCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the tuner turns, and what bounds it: has_swap_space, target_itl_s."""

    max_num_seqs: int
    max_num_batched_tokens: int
    chunked_prefill_size: int
    block_size: int
    admission: str
    preemption_mode: str
    has_swap_space: bool = False
    target_itl_s: float | None = None

    def to_reach(self, other: Settings) -> Changes:
        """What must change for these settings to become the others."""
        names = [field.name for field in fields(Changes) if hasattr(self, field.name)]
        wanted = {name: getattr(other, name) for name in names if getattr(other, name) != getattr(self, name)}
        return Changes(**wanted)


@dataclass(frozen=True, slots=True)
class Decision:
    """Settings to change, and why."""

    changes: Changes
    reason: str


@dataclass(slots=True)
class _Trial:
    """A change by `rule` that is taken back if it lowers the pace. costs are those of its beginning."""

    rule: str
    before: Settings
    costs: StepCosts
    pace_before: float


class AutoTuner:
    """`configured` is where calm leads back to."""

    def __init__(self, configured: Settings) -> None:
        self.configured = configured
        self._held: dict[str, int] = {}
        self._barred: dict[str, int] = {}
        self._cool = 0
        self._trial: _Trial | None = None
        self._done: deque[Work] = deque(maxlen=TRIAL)
        """Of the last observations under the settings in force."""

    def observe(self, seen: Observation, now: Settings) -> Decision | None:
        """One more observation under the settings `now`; what to change after it, if anything."""
        self._barred = {rule: left - 1 for rule, left in self._barred.items() if left > 1}
        if self._cool > 0:
            self._cool -= 1
            return None
        self._done.append(seen.done)
        decision = self._judge_trial(seen, now)
        if decision is None:
            rules = (self._thrashing, self._jerky, self._crowded, self._held_back, self._wasteful, self._calm)
            decision = next((made for rule in rules if (made := rule(seen, now)) is not None), None)
        if decision is not None:
            self._held.clear()
            self._done.clear()
            self._cool = COOL_DOWN
        return decision

    def refused(self) -> None:
        """The last decision could not be applied: nothing of the kind for a while."""
        self._trial = None
        self._cool = BARRED

    def _judge_trial(self, seen: Observation, now: Settings) -> Decision | None:
        trial = self._trial
        if trial is not None and seen.num_waiting == 0:
            self._trial = None  # the load has changed, and nothing can be said
            return None
        if trial is None or len(self._done) < TRIAL:
            return None
        self._trial = None
        ratio = pace(self._done, trial.costs) / trial.pace_before
        if ratio >= LOSS:
            return None
        self._barred[trial.rule] = BARRED
        return Decision(now.to_reach(trial.before), f"{trial.rule}: the pace was only {ratio:.0%} of what it had been")

    def _try(self, rule: str, seen: Observation, now: Settings, wanted: Settings, reason: str) -> Decision:
        self._trial = _Trial(rule, now, seen.costs, pace(self._done, seen.costs))
        return Decision(now.to_reach(wanted), f"{rule}: {reason}")

    def _insist(self, rule: str, now: Settings, wanted: Settings, reason: str) -> Decision:
        self._trial = None
        return Decision(now.to_reach(wanted), f"{rule}: {reason}")

    def _thrashing(self, seen: Observation, now: Settings) -> Decision | None:
        many = seen.recomputes_per_step > THRASHING or seen.preemptions_per_step > STORM
        seats = max(MIN_SEATS, 3 * min(seen.num_running, now.max_num_seqs) // 4)
        if now.preemption_mode == "recompute" and now.has_swap_space:
            wanted = replace(now, preemption_mode="auto")
        elif now.admission != self.configured.admission:
            wanted = replace(now, admission=self.configured.admission)
        else:
            wanted = replace(now, max_num_seqs=min(seats, now.max_num_seqs))
        if not self._holds("thrashing", many and seen.kv_cache_usage > NEARLY_FULL and wanted != now, HOLD):
            return None
        self._barred["held back"] = self._barred["crowded"] = BARRED
        reason = f"{seen.preemptions_per_step:.2f} preemptions per step with a KV cache {seen.kv_cache_usage:.0%} full"
        return self._insist("thrashing", now, wanted, reason)

    def _jerky(self, seen: Observation, now: Settings) -> Decision | None:
        applies = seen.median_step_s > 0.0 and seen.slow_step_s > JERKY * seen.median_step_s and seen.num_running > 1
        chunk = max(MIN_CHUNK, now.chunked_prefill_size // 2)
        if not self._holds("jerky", applies and chunk < now.chunked_prefill_size, HOLD):
            return None
        reason = f"slow steps take {1000 * seen.slow_step_s:.0f} ms, the median {1000 * seen.median_step_s:.0f} ms"
        return self._insist("jerky", now, replace(now, chunked_prefill_size=chunk), reason)

    def _crowded(self, seen: Observation, now: Settings) -> Decision | None:
        home = self.configured
        applies = seen.num_waiting > 0 and seen.num_running >= now.max_num_seqs and seen.kv_cache_usage < MUCH_ROOM
        fitting = int(seen.num_running * NEARLY_FULL / max(seen.kv_cache_usage, 1e-9)) if applies else 0
        seats = min(SEATS_FACTOR * home.max_num_seqs, seen.num_running + seen.num_waiting, fitting)
        if now.target_itl_s is not None and seen.median_step_s > 0.0:
            seats = min(seats, int(now.max_num_seqs * now.target_itl_s / seen.median_step_s))
        if not self._may_try("crowded", applies and seats > now.max_num_seqs):
            return None
        step = max(now.max_num_batched_tokens, home.max_num_batched_tokens + seats - home.max_num_seqs)
        wanted = replace(now, max_num_seqs=seats, max_num_batched_tokens=step)
        reason = f"{seen.num_waiting} requests wait for a seat with a KV cache {seen.kv_cache_usage:.0%} full"
        return self._try("crowded", seen, now, wanted, reason)

    def _held_back(self, seen: Observation, now: Settings) -> Decision | None:
        can = now.has_swap_space and now.preemption_mode != "recompute" and now.admission == "optimistic"
        applies = seen.num_waiting > 0 and 1 < seen.num_running < now.max_num_seqs and seen.full_steps < MOSTLY_FULL
        if not self._may_try("held back", can and applies and HALF_EMPTY < seen.kv_cache_usage < NEARLY_FULL):
            return None
        reason = f"{seen.num_waiting} requests wait for blocks with a KV cache {seen.kv_cache_usage:.0%} full"
        return self._try("held back", seen, now, replace(now, admission="eager"), reason)

    def _wasteful(self, seen: Observation, now: Settings) -> Decision | None:
        is_tight = seen.num_waiting > 0 and seen.kv_cache_usage > NEARLY_FULL
        applies = is_tight and seen.waste > WASTEFUL and seen.hit_rate < FEW_HITS
        if not self._may_try("wasteful", applies and now.block_size > MIN_BLOCK):
            return None
        size = max(MIN_BLOCK, now.block_size // 2 // MIN_BLOCK * MIN_BLOCK)
        reason = f"{seen.waste:.0%} of a full KV cache is unfilled while requests wait"
        return self._try("wasteful", seen, now, replace(now, block_size=size), reason)

    def _calm(self, seen: Observation, now: Settings) -> Decision | None:
        home = self.configured
        applies = seen.num_waiting == 0 and seen.kv_cache_usage < HALF_EMPTY and seen.preemptions_per_step == 0.0
        if not self._holds("calm", applies and now != home and seen.num_running <= home.max_num_seqs, CALM_HOLD):
            return None
        return self._insist("calm", now, home, "nobody waits any more")

    def _may_try(self, rule: str, applies: bool) -> bool:
        """Whether a rule that changes something on trial has held; one trial at a time."""
        return self._holds(rule, applies and self._trial is None, HOLD)

    def _holds(self, rule: str, applies: bool, count: int) -> bool:
        """Whether the rule has applied `count` times in a row, and is not barred."""
        self._held[rule] = self._held.get(rule, 0) + 1 if applies and rule not in self._barred else 0
        return self._held[rule] >= count
