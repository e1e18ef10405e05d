"""Turns: engines that differ in settings alone serve the same load, each for a moment in turn and each by a clock of its own.

So whatever else the machine does is spread over all of them, and no engine sees the time that the others had. A virtual engine
has a worker that computes nothing and a clock that moves on by a cost model: its figures are the same everywhere.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from octavo.config.cache import GIB
from octavo.config.engine import EngineConfig
from octavo.config.resolved import ResolvedBackendConfig, ResolvedCacheConfig, ResolvedConfig, narrowed
from octavo.engine.core.build import assemble_core
from octavo.engine.core.engine_core import EngineCore
from octavo.request import Request
from octavo.sampling_params import SamplingParams
from octavo.simulator.cost_model import load_of
from octavo.simulator.profile import Profile
from octavo.simulator.settings import engine_spec
from octavo.step import Relayout, RelayoutResult, SampledTokens, StepPlan, StepResult

RELAYOUT_S = 0.01
"""What a virtual worker takes to change its sizes; a real one 2 to 10 ms with a model of 135M parameters."""
BLOCK_MOVE_S = 0.0002
"""Out to the swap space and back, one block; see docs/preemption.md."""

IDLE_S = 1.0
"""An idle core looks around as often as this."""


class OwnClock:
    """Seconds of `source` that pass between start and stop, and those it is moved on by."""

    def __init__(self, source: Callable[[], float] = time.perf_counter) -> None:
        self._source = source
        self._passed_s = 0.0
        self._since_s: float | None = None

    def __call__(self) -> float:
        return self._passed_s + (self._source() - self._since_s if self._since_s is not None else 0.0)

    def start(self) -> None:
        self._since_s = self._source()

    def stop(self) -> None:
        self._passed_s, self._since_s = self(), None

    def advance(self, seconds: float) -> None:
        self._passed_s += seconds


@dataclass(frozen=True, slots=True)
class Load:
    """num_clients ask at once; each asks again when it has its answer, or, in waves, pause_s after all have theirs.

    Prompts and answers are between half and one and a half times as long as given, all equally often.
    """

    num_clients: int
    prompt_len: int
    output_len: int
    pause_s: float | None = None


class VirtualWorker:
    """Moves the clock on as the cost model says, and answers every sample with the same token."""

    def __init__(self, profile: Profile, clock: OwnClock) -> None:
        self._cost, self._clock = profile.cost, clock
        self._plans: deque[StepPlan] = deque()

    def start(self, plan: StepPlan) -> None:
        self._plans.append(plan)

    def finish(self) -> StepResult:
        return self.run(self._plans.popleft())

    def drop(self) -> None:
        self._plans.clear()

    def run(self, plan: StepPlan) -> StepResult:
        load = load_of(plan)
        seconds = self._cost.seconds(load.prefill_tokens, load.prefill_pairs, load.decode_seqs, load.decode_context)
        self._clock.advance(seconds + BLOCK_MOVE_S / 2 * (len(plan.swap_out) + len(plan.swap_in)))
        return StepResult(plan.step_id, [SampledTokens(share.seq_id, [7]) for share in plan.sequences if share.needs_sample])

    def reconfigure(self, relayout: Relayout) -> RelayoutResult:
        self._clock.advance(RELAYOUT_S)
        return RelayoutResult()


def virtual_core(config: EngineConfig, clock: OwnClock, profile: Profile) -> EngineCore:
    """The engine of `config`, with a swap space as large as its KV cache, over a worker that computes nothing."""
    spec = engine_spec(config.cache, config.scheduler, profile)
    size_gib = spec.num_blocks * spec.block_size * profile.kv_bytes_per_token / GIB
    cache = narrowed(
        ResolvedCacheConfig,
        config.cache,
        num_gpu_blocks_override=spec.num_blocks,
        kv_cache_memory=size_gib,
        num_swap_blocks_override=spec.num_blocks,
        swap_space=size_gib,
    )
    backend = narrowed(ResolvedBackendConfig, config.backend, num_threads=1)
    resolved = ResolvedConfig(loading=config.loading, cache=cache, scheduler=spec.scheduler, backend=backend)
    return assemble_core(resolved, VirtualWorker(profile, clock), b"virtual", BLOCK_MOVE_S, clock=clock)


class Contestant:
    """One engine under the load. changes: what its tuner did, and when."""

    def __init__(self, name: str, core: EngineCore, load: Load, clock: OwnClock) -> None:
        self.name, self.core, self.clock = name, core, clock
        self.changes: list[str] = []
        self._load = load
        self._rng = random.Random(1)
        self._num_sent = self._num_live = 0
        self._quiet_until_s = 0.0
        self._tokens_s: list[float] = []
        """When each token came."""
        self._last_s: dict[str, float] = {}
        self._gaps: list[tuple[float, float]] = []

    def play(self, until_s: float) -> None:
        """Serve until its clock is there."""
        while self.clock() < until_s:
            self._send_missing()
            if self.core.has_work():
                self._step()
            else:
                idle_s = min(self._quiet_until_s, until_s) - self.clock()
                self.clock.advance(min(IDLE_S, max(0.0, idle_s)))
            report = self.core.tune()
            if report is not None:
                changed = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in report.changed.items())
                self.changes.append(f"{self.clock():.1f} s: {changed} ({report.reason})")

    def rate(self, from_s: float) -> float:
        """Tokens per second since then."""
        return sum(at_s >= from_s for at_s in self._tokens_s) / (self.clock() - from_s)

    def itl_s(self, from_s: float, share: float) -> float:
        """That quantile of the gaps between two tokens of a request since then."""
        gaps = sorted(gap_s for at_s, gap_s in self._gaps if at_s >= from_s)
        return gaps[min(len(gaps) - 1, int(share * len(gaps)))] if gaps else 0.0

    def _step(self) -> None:
        for output in self.core.step().outputs:
            assert output.error is None, output.error
            now_s = self.clock()
            if output.token_ids:
                self._tokens_s += [now_s] * len(output.token_ids)
                if output.request_id in self._last_s:
                    self._gaps.append((now_s, now_s - self._last_s[output.request_id]))
                self._last_s[output.request_id] = now_s
            if output.finish_reason is not None:
                del self._last_s[output.request_id]
                self._num_live -= 1
                if self._num_live == 0 and self._load.pause_s is not None:
                    self._quiet_until_s = now_s + self._load.pause_s

    def _send_missing(self) -> None:
        in_wave = self._load.pause_s is not None and self._num_live > 0
        if in_wave or self.clock() < self._quiet_until_s:
            return
        while self._num_live < self._load.num_clients:
            self.core.add_request(self._request())
            self._num_live += 1

    def _request(self) -> Request:
        rng, load = self._rng, self._load
        num_prompt = rng.randint(load.prompt_len // 2, 3 * load.prompt_len // 2)
        max_tokens = rng.randint(load.output_len // 2, 3 * load.output_len // 2)
        self._num_sent += 1
        return Request(
            request_id=str(self._num_sent),
            prompt_token_ids=[rng.randrange(100, 40000) for _ in range(num_prompt)],
            sampling=SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True),
            seed=0,
            max_tokens=max_tokens,
            stop_token_ids=[],
            arrival_s=self.clock(),
        )


def take_turns(contestants: list[Contestant], seconds: float, turn_s: float = 1.0) -> None:
    """Give every contestant `seconds` of its own clock, turn_s at a time; who begins a round changes with each."""
    order, until_s = deque(contestants), 0.0
    while until_s < seconds:
        until_s += turn_s
        for contestant in order:
            contestant.clock.start()
            contestant.play(until_s)
            contestant.clock.stop()
        order.rotate(1)
