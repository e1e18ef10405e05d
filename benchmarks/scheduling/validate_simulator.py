"""Does the simulator say what the engine does? A real model under two loads, in process, beside the simulator's prediction.

Run:  python benchmarks/scheduling/validate_simulator.py [MODEL] [--rounds 3] [--profile FILE] [--output-json FILE]
Needs a quiet machine for about a minute per round. Each round calibrates anew (unless --profile is given), runs both loads, and
prints predicted / measured; the last lines are the medians over rounds against the targets: throughput within 10%, p90 TTFT
within 20%.

closed loop   16 requests under way at any time
open loop     Poisson arrivals at a share of the rate that the closed loop reached
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from octavo.config.loading import DEFAULT_MODEL
from octavo.config.resolved import ResolvedConfig
from octavo.engine.args import EngineArgs
from octavo.engine.frontend.served_model import locate_model
from octavo.engine.llm_engine import LLMEngine
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.simulator.calibrate import calibrate
from octavo.simulator.fleet import FleetSpec, simulate
from octavo.simulator.profile import Profile, load_profile
from octavo.simulator.replica import EngineSpec
from octavo.simulator.summary import summarize
from octavo.simulator.trace import Trace, make_trace

CONCURRENCY = 16
TARGETS = {"throughput": 0.10, "ttft_p90": 0.20}


@dataclass(frozen=True)
class Figures:
    """Output tokens per second, and seconds."""

    throughput: float
    ttft_p90: float


def make_load(num_requests: int, rate: float | None, seed: int) -> Trace:
    """Prompts of 32 to 384 tokens, answers of 16 to 96; all at once without a rate."""
    rng = random.Random(seed)
    arrivals, now_s = [], 0.0
    for _ in range(num_requests):
        arrivals.append(now_s)
        now_s += rng.expovariate(rate) if rate is not None else 0.0
    prompts = [rng.randint(32, 384) for _ in arrivals]
    return make_trace("load", arrivals, prompts, [rng.randint(16, 96) for _ in arrivals])


def run_engine(engine: LLMEngine, trace: Trace, max_concurrency: int | None, seed: int) -> Figures:
    """Send the trace to the engine by the wall clock. TTFT counts from when a request was due (or its place became free)."""
    rng = random.Random(seed)
    vocab_size = engine.model_config.vocab_size
    prompts = [[rng.randrange(vocab_size) for _ in range(int(length))] for length in trace.num_prompt]
    due_s = [float(arrival) for arrival in trace.arrival_s]
    first_s: dict[int, float] = {}
    sent, live, num_output = 0, 0, 0
    start_s = time.perf_counter()
    while sent < len(trace) or live:
        now_s = time.perf_counter() - start_s
        while sent < len(trace) and due_s[sent] <= now_s and (max_concurrency is None or live < max_concurrency):
            if max_concurrency is not None:
                due_s[sent] = now_s
            length = int(trace.num_output[sent])
            params = SamplingParams(temperature=0.0, max_tokens=length, ignore_eos=True)
            engine.add_request(str(sent), prompts[sent], params, output_kind=RequestOutputKind.DELTA)
            sent, live = sent + 1, live + 1
        if not live:
            time.sleep(max(0.0, due_s[sent] - now_s))
            continue
        for output in engine.step():
            first_s.setdefault(int(output.request_id), time.perf_counter() - start_s)
            num_output += sum(len(choice.token_ids) for choice in output.outputs)
            live -= output.finished
    span_s = time.perf_counter() - start_s
    ttft_s = [first_s[index] - due_s[index] for index in range(len(trace))]
    return Figures(num_output / span_s, float(np.percentile(ttft_s, 90)))


def predict(config: ResolvedConfig, profile: Profile, trace: Trace, max_concurrency: int | None) -> Figures:
    """The same load through the simulator."""
    engine = EngineSpec(scheduler=config.scheduler, num_blocks=config.cache.num_blocks, block_size=config.cache.block_size)
    spec = FleetSpec(engine=engine, max_concurrency=max_concurrency)
    summary = summarize(trace, spec, simulate(trace, spec, profile.cost))
    return Figures(summary.output_tokens_per_s, summary.ttft_s.p90)


def one_round(
    engine: LLMEngine, profile: Profile, num_requests: int, load_share: float, seed: int
) -> dict[str, dict[str, float]]:
    """Predicted / measured by load and figure."""
    ratios: dict[str, dict[str, float]] = {}
    config = engine.resolved_config
    rate = 0.0
    for name in ("closed loop", "open loop"):
        closed = name == "closed loop"
        trace = make_load(num_requests, None if closed else rate, seed)
        limit = CONCURRENCY if closed else None
        predicted, measured = predict(config, profile, trace, limit), run_engine(engine, trace, limit, seed)
        if closed:
            rate = load_share * measured.throughput / float(trace.num_output.mean())
        ratios[name] = {key: value / asdict(measured)[key] for key, value in asdict(predicted).items()}
        print(
            f"{name:<12} throughput {predicted.throughput:7.1f} predicted, {measured.throughput:7.1f} measured tokens/s "
            f"({ratios[name]['throughput']:.3f})   TTFT p90 {predicted.ttft_p90:6.3f}, {measured.ttft_p90:6.3f} s "
            f"({ratios[name]['ttft_p90']:.3f})",
            flush=True,
        )
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--num-requests", type=int, default=64)
    parser.add_argument("--load-share", type=float, default=0.7, help="open loop: share of the closed loop's rate")
    parser.add_argument("--profile", help="use this calibration instead of a new one per round")
    parser.add_argument("--output-json")
    arguments = parser.parse_args()
    config = locate_model(EngineArgs(model=arguments.model).create_engine_config(), None)
    engine = LLMEngine(config)
    run_engine(engine, make_load(4, None, 99), CONCURRENCY, 99)
    rounds = []
    for index in range(arguments.rounds):
        profile = load_profile(Path(arguments.profile)) if arguments.profile else calibrate(config)
        print(profile.describe())
        rounds.append(one_round(engine, profile, arguments.num_requests, arguments.load_share, index))
    medians = {load: {key: statistics.median(ratios[load][key] for ratios in rounds) for key in TARGETS} for load in rounds[0]}
    for load, ratios in medians.items():
        for key, target in TARGETS.items():
            verdict = "within" if abs(ratios[key] - 1.0) <= target else "OUTSIDE"
            print(f"{load:<12} {key:<11} predicted / measured {ratios[key]:.3f}, {verdict} {target:.0%}")
    if arguments.output_json is not None:
        Path(arguments.output_json).write_text(json.dumps({"rounds": rounds, "medians": medians}, indent=2) + "\n")


if __name__ == "__main__":
    main()
