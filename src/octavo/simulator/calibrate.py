"""calibrate: measure this machine by running the engine, in process, over a small grid of batches, prompts and contexts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from octavo.config.engine import EngineConfig
from octavo.config.model import ModelConfig
from octavo.engine.core.build import build_core
from octavo.engine.core.engine_core import EngineCore
from octavo.engine.core.retry import Worker
from octavo.request import Request
from octavo.sampling_params import SamplingParams
from octavo.simulator.cost_model import StepLoad, fit, load_of
from octavo.simulator.profile import Profile, machine_name
from octavo.step import Relayout, RelayoutResult, StepPlan, StepResult
from octavo.worker.memory import kv_block_bytes


@dataclass(frozen=True, slots=True)
class Wave:
    """Requests that are sent together, the next ones `stagger` steps later, all with equal lengths.

    Staggered waves decode and prefill in the same step; waves sent at once give whole batches of equal context.
    """

    num_requests: int
    num_prompt: int
    num_output: int
    stagger: int = 0


WAVES = (
    Wave(1, 16, 10),
    Wave(2, 16, 8),
    Wave(4, 16, 8),
    Wave(8, 16, 8),
    Wave(16, 16, 8),
    Wave(32, 16, 8),
    Wave(64, 16, 5),
    Wave(1, 64, 6),
    Wave(1, 128, 6),
    Wave(4, 128, 8),
    Wave(1, 512, 8),
    Wave(1, 1536, 8),
    Wave(4, 384, 8),
    Wave(16, 96, 6),
    Wave(6, 200, 16, stagger=3),
    Wave(4, 300, 24, stagger=5),
    Wave(16, 220, 48, stagger=3),
)
"""About 20 s for a model of 135M parameters on two cores; larger models take as many times longer as they are larger. Prompts
beyond the engine's context are left out."""

WARM_UP = Wave(2, 64, 4)


class RecordingWorker:
    """Remembers the load of the last plan it passed on."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.last: StepLoad | None = None

    def start(self, plan: StepPlan) -> None:
        self.last = load_of(plan)
        self._worker.start(plan)

    def finish(self) -> StepResult:
        return self._worker.finish()

    def drop(self) -> None:
        self._worker.drop()

    def reconfigure(self, relayout: Relayout) -> RelayoutResult:
        return self._worker.reconfigure(relayout)


def calibrate(config: EngineConfig, on_progress: Callable[[int, int], None] | None = None) -> Profile:
    """Measure `config`'s engine (loading.model is a path) and fit the cost model. on_progress hears (waves done, waves in all).

    Prefix caching is off while measuring. Raises ConfigError and LoadError as the engine does.
    """
    recorders: list[RecordingWorker] = []

    def record(worker: Worker) -> Worker:
        recorders.append(RecordingWorker(worker))
        return recorders[-1]

    config = replace(config, cache=replace(config.cache, enable_prefix_caching=False))
    built = build_core(config, wrap_worker=record)
    resolved = built.resolved
    waves = [wave for wave in WAVES if wave.num_prompt + wave.num_output <= resolved.max_model_len]
    rng = random.Random(0)
    loads: list[StepLoad] = []
    seconds: list[float] = []
    for index, wave in enumerate([WARM_UP, *waves]):
        for load, duration_s in _run_wave(built.core, recorders[0], resolved.model, wave, rng):
            if index:
                loads.append(load)
                seconds.append(duration_s)
        if on_progress is not None:
            on_progress(index, len(waves))
    fitted = fit(loads, seconds)
    backend, cache = resolved.config.backend, resolved.config.cache
    return Profile(
        name=f"{config.loading.model.rsplit('/', 1)[-1]} on {machine_name()}, {backend.num_threads} threads",
        cost=fitted.model,
        kv_bytes_per_token=kv_block_bytes(resolved.model, cache.block_size, cache.kv_cache_dtype) // cache.block_size,
        max_position=resolved.model.max_position,
        num_samples=fitted.num_samples,
        median_error=fitted.median_error,
        p90_error=fitted.p90_error,
    )


def _run_wave(
    core: EngineCore, recorder: RecordingWorker, model: ModelConfig, wave: Wave, rng: random.Random
) -> Iterator[tuple[StepLoad, float]]:
    """(load, seconds) of each step of a wave."""
    waiting = [_request(index, wave, model, rng) for index in range(wave.num_requests)]
    num_steps = 0
    while waiting or core.has_work():
        if wave.stagger == 0 or num_steps % wave.stagger == 0:
            for request in waiting if wave.stagger == 0 else waiting[:1]:
                core.add_request(request)
            del waiting[: len(waiting) if wave.stagger == 0 else 1]
        recorder.last = None
        start_s = time.perf_counter()
        core.step()
        duration_s = time.perf_counter() - start_s
        num_steps += 1
        if recorder.last is not None:
            yield recorder.last, duration_s


def _request(index: int, wave: Wave, model: ModelConfig, rng: random.Random) -> Request:
    """A greedy request of random tokens that generates exactly as many as the wave says."""
    return Request(
        request_id=f"wave-{index}",
        prompt_token_ids=[rng.randrange(model.vocab_size) for _ in range(wave.num_prompt)],
        sampling=SamplingParams(temperature=0.0, max_tokens=wave.num_output, ignore_eos=True),
        seed=0,
        max_tokens=wave.num_output,
        stop_token_ids=[],
        arrival_s=time.monotonic(),
    )
