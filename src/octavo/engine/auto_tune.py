"""AutoTuner: settings by rule, from what a few seconds of load looked like. Pure: observations in, changes out, no clock.

Rules, in this order; each must hold HOLD observations in a row, and after a change nothing happens for COOL_DOWN of them:

    thrashing  sequences are preempted in a cache that is nearly full        -> fewer seats (max_num_seqs)
    jerky      the slowest steps take many times the median one              -> smaller prefill chunks
    crowded    requests wait for a seat while the cache has much room        -> more seats, on trial
    wasteful   requests wait, the cache is full and much of it is unfilled   -> smaller blocks
    calm       nobody waits and the cache is half empty, for longer          -> back towards what was configured

More seats are a trial: they grow further only if they bring more tokens per second, and are taken away if they bring fewer.
Smaller blocks drop what the prefix cache remembers of ended requests, so they are only taken where it finds little. What
preempted sequences leave behind is not decided here: that is for --preemption-mode. Blocks larger than configured are never
taken; no load was found that gains from them.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config.changes import Changes

HOLD = 3
COOL_DOWN = 5
CALM_HOLD = 10
BARRED = 60
"""Observations for which a setting that did not do well is not tried again."""

NEARLY_FULL = 0.85
MUCH_ROOM = 0.6
HALF_EMPTY = 0.5
THRASHING = 0.05
"""Preemptions per step."""
JERKY = 4.0
"""Slowest steps against the median one. Chunks of 256 beside decodes of a small model are near 3."""
WASTEFUL = 0.06
"""Share of the used slots without a token; at block size 16 a load of short requests has 4%."""
FEW_HITS = 0.05
GAIN = 1.03
LOSS = 0.95
"""A trial that brings GAIN times the tokens per second may be followed by another; one that brings less than LOSS times is
undone. In between it stands: undoing it would preempt requests for nothing."""

MIN_SEATS = 4
MIN_CHUNK = 64
MIN_BLOCK = 8
SEATS_FACTOR = 4
"""Most seats, in multiples of what was configured; never more than a step has tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """An interval of some seconds. median_step_s and slow_step_s (95th percentile) are 0 without a step; tokens: generated."""

    num_running: int
    num_waiting: int
    kv_cache_usage: float
    waste: float
    hit_rate: float
    preemptions_per_step: float
    median_step_s: float
    slow_step_s: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the tuner turns."""

    max_num_seqs: int
    max_num_batched_tokens: int
    chunked_prefill_size: int
    block_size: int


@dataclass(frozen=True, slots=True)
class Decision:
    """Settings to change, and why."""

    changes: Changes
    reason: str


@dataclass(slots=True)
class _Trial:
    """Seats that were added, and what is to be beaten."""

    seats_before: int
    tokens_per_s: float
    total: float = 0.0
    count: int = 0


class AutoTuner:
    """`configured` is where calm leads back to."""

    def __init__(self, configured: Settings) -> None:
        self._configured = configured
        self._held: dict[str, int] = {}
        self._cool = 0
        self._trial: _Trial | None = None
        self._most_seats = min(SEATS_FACTOR * configured.max_num_seqs, configured.max_num_batched_tokens)
        self._ceiling = self._most_seats
        self._barred = 0

    def observe(self, seen: Observation, now: Settings) -> Decision | None:
        """One more observation under the settings `now`; what to change after it, if anything."""
        self._barred = max(0, self._barred - 1)
        if self._barred == 0:
            self._ceiling = self._most_seats
        if self._trial is not None:
            self._trial.total += seen.tokens_per_s
            self._trial.count += 1
        if self._cool > 0:
            self._cool -= 1
            return None
        decision = self._judge_trial(seen, now)
        if decision is None:
            rules = (self._thrashing, self._jerky, self._crowded, self._wasteful, self._calm)
            decision = next((made for rule in rules if (made := rule(seen, now)) is not None), None)
        if decision is not None:
            self._held.clear()
            self._cool = COOL_DOWN
        return decision

    def refused(self) -> None:
        """The last decision could not be applied: nothing of the kind for a while."""
        self._trial = None
        self._cool = BARRED

    def _judge_trial(self, seen: Observation, now: Settings) -> Decision | None:
        trial, self._trial = self._trial, None
        if trial is None or seen.num_waiting == 0 or trial.total / trial.count >= GAIN * trial.tokens_per_s:
            return None  # it did well, or the load has changed and nothing can be said
        if trial.total / trial.count >= LOSS * trial.tokens_per_s:
            self._bar(now.max_num_seqs)
            return None
        self._bar(trial.seats_before)
        reason = f"{now.max_num_seqs} seats gave {trial.total / trial.count:.0f} tokens/s, fewer gave {trial.tokens_per_s:.0f}"
        return Decision(Changes(max_num_seqs=trial.seats_before), reason)

    def _thrashing(self, seen: Observation, now: Settings) -> Decision | None:
        applies = seen.preemptions_per_step > THRASHING and seen.kv_cache_usage > NEARLY_FULL
        seats = max(MIN_SEATS, 3 * min(seen.num_running, now.max_num_seqs) // 4)
        if not self._holds("thrashing", applies and seats < now.max_num_seqs, HOLD):
            return None
        self._bar(seats)
        reason = f"{seen.preemptions_per_step:.2f} preemptions per step with a KV cache {seen.kv_cache_usage:.0%} full"
        return Decision(Changes(max_num_seqs=seats), reason)

    def _jerky(self, seen: Observation, now: Settings) -> Decision | None:
        applies = seen.median_step_s > 0.0 and seen.slow_step_s > JERKY * seen.median_step_s and seen.num_running > 1
        chunk = max(MIN_CHUNK, now.chunked_prefill_size // 2)
        if not self._holds("jerky", applies and chunk < now.chunked_prefill_size, HOLD):
            return None
        reason = f"slow steps take {1000 * seen.slow_step_s:.0f} ms, the median {1000 * seen.median_step_s:.0f} ms"
        return Decision(Changes(chunked_prefill_size=chunk), reason)

    def _crowded(self, seen: Observation, now: Settings) -> Decision | None:
        applies = seen.num_waiting > 0 and seen.num_running >= now.max_num_seqs and seen.kv_cache_usage < MUCH_ROOM
        seats = min(self._ceiling, now.max_num_batched_tokens, now.max_num_seqs + max(1, now.max_num_seqs // 2))
        if not self._holds("crowded", applies and seats > now.max_num_seqs, HOLD):
            return None
        self._trial = _Trial(now.max_num_seqs, seen.tokens_per_s)
        reason = f"{seen.num_waiting} requests wait for a seat with a KV cache {seen.kv_cache_usage:.0%} full"
        return Decision(Changes(max_num_seqs=seats), reason)

    def _wasteful(self, seen: Observation, now: Settings) -> Decision | None:
        is_tight = seen.num_waiting > 0 and seen.kv_cache_usage > NEARLY_FULL
        applies = is_tight and seen.waste > WASTEFUL and seen.hit_rate < FEW_HITS
        if not self._holds("wasteful", applies and now.block_size > MIN_BLOCK, HOLD):
            return None
        size = max(MIN_BLOCK, now.block_size // 2 // 8 * 8)
        return Decision(Changes(block_size=size), f"{seen.waste:.0%} of a full KV cache is unfilled while requests wait")

    def _calm(self, seen: Observation, now: Settings) -> Decision | None:
        applies = seen.num_waiting == 0 and seen.kv_cache_usage < HALF_EMPTY and seen.preemptions_per_step == 0.0
        home = self._configured
        chunk = min(home.chunked_prefill_size, 2 * now.chunked_prefill_size)
        changes = Changes(
            max_num_seqs=_unless_equal(home.max_num_seqs, now.max_num_seqs),
            chunked_prefill_size=_unless_equal(chunk, now.chunked_prefill_size),
            block_size=_unless_equal(home.block_size, now.block_size),
        )
        if not self._holds("calm", applies and bool(changes.given()), CALM_HOLD):
            return None
        return Decision(changes, "the load is calm again")

    def _holds(self, rule: str, applies: bool, count: int) -> bool:
        """Whether the rule has applied `count` times in a row."""
        self._held[rule] = self._held.get(rule, 0) + 1 if applies else 0
        return self._held[rule] >= count

    def _bar(self, seats: int) -> None:
        self._ceiling, self._barred = seats, BARRED


def _unless_equal(wanted: int, now: int) -> int | None:
    return wanted if wanted != now else None
