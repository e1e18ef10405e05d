"""What a long prompt does to the streams that run beside it, with and without a latency target.

Run:  python benchmarks/scheduling/target_itl.py [MODEL] [--streams 16] [--prompt 6000] [--target-itl MS] [--settings ...]

One engine in this process. Streams decode; once all do, a prompt of 6,000 tokens arrives, and the gaps between the tokens of
the streams are measured until its own first token. Some steps before it comes show what the gaps are in calm. The settings
differ in how large a prompt's share of a step may be:

whole       chunked_prefill_size and max_num_batched_tokens of 2,048
default     the default chunk size
target      --target-itl, from calm: the median gap of the streams alone, times --factor
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from octavo.engine.args import EngineArgs
from octavo.engine.llm_engine import LLMEngine
from octavo.engine.outputs import OutputKind
from octavo.sampling_params import SamplingParams

LARGE_STEP = 2048
CALM_STEPS = 40
STREAM_PROMPT = 32


@dataclass(frozen=True)
class Gaps:
    """Milliseconds between two tokens of a stream, over all streams."""

    p50: float
    p99: float
    most: float
    count: int

    @classmethod
    def of(cls, gaps_s: list[float]) -> Gaps:
        ms = np.array(gaps_s) * 1e3
        return cls(*(round(float(value), 1) for value in (np.median(ms), np.percentile(ms, 99), ms.max())), len(gaps_s))


class Scene:
    """An engine with its streams, and the time of every token of theirs."""

    def __init__(self, model: str, num_streams: int, num_prompt: int, **options: float) -> None:
        length = max(8192, num_prompt + 64)
        arguments = EngineArgs(model=model, max_model_len=length, num_gpu_blocks_override=length // 8, **options)  # type: ignore[arg-type]
        self.engine = LLMEngine.from_engine_args(arguments)
        self.last_s: dict[str, float] = {}
        self._rng = np.random.default_rng(5)
        for index in range(num_streams):
            self.add(f"stream {index}", STREAM_PROMPT, 100_000)

    def add(self, name: str, num_prompt: int, max_tokens: int) -> None:
        prompt = [int(token) for token in self._rng.integers(1000, 40_000, num_prompt)]
        room = self.engine.max_model_len - num_prompt
        params = SamplingParams(temperature=0, max_tokens=min(max_tokens, room), ignore_eos=True)
        self.engine.add_request(name, prompt, params, output_kind=OutputKind.DELTA)

    def steps(self) -> Iterator[tuple[set[str], list[float]]]:
        """Of each step, who got a token, and the gaps of the streams that did."""
        while True:
            names = {output.request_id for output in self.engine.step()}
            now = time.perf_counter()
            streams = {name for name in names if name.startswith("stream")}
            yield names, [now - self.last_s[name] for name in streams if name in self.last_s]
            self.last_s.update(dict.fromkeys(streams, now))


def measure(scene: Scene, num_streams: int, num_prompt: int) -> tuple[Gaps, Gaps, float]:
    """Gaps in calm, gaps while the prompt is computed, seconds until its first token."""
    steps = scene.steps()
    while len(scene.last_s) < num_streams:
        next(steps)
    next(steps)
    calm = [gap for _ in range(CALM_STEPS) for gap in next(steps)[1]]
    started_s = time.perf_counter()
    scene.add("prompt", num_prompt, 2)
    crowded: list[float] = []
    for names, gaps in steps:
        crowded += gaps
        if "prompt" in names:
            break
    return Gaps.of(calm), Gaps.of(crowded), time.perf_counter() - started_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("model", nargs="?", default="smollm2-135m-instruct")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=6000)
    parser.add_argument("--target-itl", type=float, help="ms; default: --factor times the median gap in calm")
    parser.add_argument("--factor", type=float, default=2.0)
    parser.add_argument("--settings", nargs="+", default=["whole", "default", "target"])
    arguments = parser.parse_args()
    medians: list[float] = []
    for name in arguments.settings:
        options: dict[str, float] = {}
        if name == "whole":
            options = {"chunked_prefill_size": LARGE_STEP, "max_num_batched_tokens": LARGE_STEP}
        elif name == "target":
            target = arguments.target_itl or round(arguments.factor * statistics.median(medians), 1)
            options = {"target_itl": target, "max_num_batched_tokens": LARGE_STEP}
        scene = Scene(arguments.model, arguments.streams, arguments.prompt, **options)
        calm, crowded, ttft_s = measure(scene, arguments.streams, arguments.prompt)
        medians.append(calm.p50)
        scene.engine.shutdown()
        figures = {
            "setting": name,
            **options,
            "calm_p50_ms": calm.p50,
            "calm_p99_ms": calm.p99,
            "p50_ms": crowded.p50,
            "p99_ms": crowded.p99,
            "max_ms": crowded.most,
            "p99_over_p50": round(crowded.p99 / crowded.p50, 2),
            "p99_over_calm_p50": round(crowded.p99 / calm.p50, 2),
            "gaps": crowded.count,
            "prompt_ttft_s": round(ttft_s, 1),
        }
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
