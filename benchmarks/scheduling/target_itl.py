"""What a long prompt does to the streams that run beside it, with and without a latency target.

Run:  python benchmarks/scheduling/target_itl.py [MODEL] [--streams 16] [--prompt 6000] [--factor 2] [--settings ...]

One engine in this process, whose settings change while its streams decode. For each setting: some steps of the streams alone,
in calm; then a prompt of 6,000 tokens arrives, and the gaps between their tokens are measured until its own first token.

whole     a step takes up to 2,048 tokens of the prompt
default   the default chunk size
target    --target-itl, `factor` times the median gap that was just seen in calm
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator

import numpy as np

from octavo.config.scheduler import SchedulerConfig
from octavo.engine.args import EngineArgs
from octavo.engine.llm_engine import LLMEngine
from octavo.sampling_params import RequestOutputKind, SamplingParams

LARGE_STEP = 2048
CALM_STEPS = 40
STREAM_PROMPT = 32
Settings = dict[str, int | float | str]


class Scene:
    """An engine with its streams, and the time of every token of theirs."""

    def __init__(self, model: str, num_streams: int, num_prompt: int) -> None:
        max_model_len = max(8192, num_prompt + 64)
        arguments = EngineArgs(model=model, max_model_len=max_model_len, num_gpu_blocks_override=max_model_len // 4)
        self.engine = LLMEngine.from_engine_args(arguments)
        self._rng = np.random.default_rng(5)
        self._last_s: dict[str, float] = {}
        for index in range(num_streams):
            self.add(f"stream {index}", STREAM_PROMPT, max_model_len - STREAM_PROMPT)
        while len(self._last_s) < num_streams:
            self.step()

    def add(self, name: str, num_prompt: int, max_tokens: int) -> None:
        prompt = [int(token) for token in self._rng.integers(1000, 40_000, num_prompt)]
        params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
        self.engine.add_request(name, prompt, params, output_kind=RequestOutputKind.DELTA)

    def step(self) -> tuple[set[str], list[float]]:
        """One step: who got a token, and the gaps in ms of the streams that did."""
        names = {output.request_id for output in self.engine.step()}
        now_s = time.perf_counter()
        streams = {name for name in names if name.startswith("stream")}
        gaps = [1e3 * (now_s - self._last_s[name]) for name in streams if name in self._last_s]
        self._last_s.update(dict.fromkeys(streams, now_s))
        return names, gaps

    def gaps_beside(self, prompt: str) -> Iterator[float]:
        """Gaps of the streams until the first token of the prompt."""
        names: set[str] = set()
        while prompt not in names:
            names, gaps = self.step()
            yield from gaps


def settings_of(name: str, calm_ms: float, factor: float) -> Settings:
    """What the engine is told before the prompt comes."""
    if name == "default":
        default = SchedulerConfig()
        sizes: Settings = {
            "chunked_prefill_size": default.chunked_prefill_size,
            "max_num_batched_tokens": default.max_num_batched_tokens,
        }
    else:
        sizes = {"chunked_prefill_size": LARGE_STEP, "max_num_batched_tokens": LARGE_STEP}
    return {**sizes, "target_itl": round(factor * calm_ms, 1) if name == "target" else 0}


def measure(scene: Scene, name: str, num_prompt: int, factor: float) -> dict[str, float | str | int]:
    """The figures of one setting."""
    scene.step()
    calm = [gap for _ in range(CALM_STEPS) for gap in scene.step()[1]]
    calm_ms = float(np.median(calm))
    settings = settings_of(name, calm_ms, factor)
    scene.engine.reconfigure(**settings)
    started_s = time.perf_counter()
    scene.add(name, num_prompt, 1)
    crowded = list(scene.gaps_beside(name))
    ttft_s = time.perf_counter() - started_s
    median, p99, most = (float(value) for value in (np.median(crowded), np.percentile(crowded, 99), max(crowded)))
    return {
        "setting": name,
        "target_ms": settings["target_itl"],
        "calm_p50_ms": round(calm_ms, 1),
        "calm_p99_ms": round(float(np.percentile(calm, 99)), 1),
        "p50_ms": round(median, 1),
        "p99_ms": round(p99, 1),
        "max_ms": round(most, 1),
        "p99_over_p50": round(p99 / median, 2),
        "p99_over_calm_p50": round(p99 / calm_ms, 2),
        "gaps": len(crowded),
        "prompt_ttft_s": round(ttft_s, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("model", nargs="?", default="smollm2-135m-instruct")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=6000)
    parser.add_argument("--factor", type=float, default=2.0)
    parser.add_argument("--settings", nargs="+", default=["target", "default", "whole"])
    arguments = parser.parse_args()
    scene = Scene(arguments.model, arguments.streams, arguments.prompt)
    for name in arguments.settings:
        print(json.dumps(measure(scene, name, arguments.prompt, arguments.factor)), flush=True)
    scene.engine.shutdown()


if __name__ == "__main__":
    main()
