"""What --auto-tune gains or costs against fixed settings on three loads.

Run:  python benchmarks/scheduling/auto_tune.py MODEL [--seconds 60] [--loads crowd long waves]
For each load the same requests are served by engines that differ in settings alone, in turns; generated tokens per second count
from a third of the time on, so that the tuner has had time to act. Fixed settings are the default and others around it.

crowd  160 clients, short prompts, answers of 96 tokens: more clients than the default has seats
long   32 clients, prompts of 500 tokens, answers of 48
waves  a burst of 128 short requests, then nothing until they are done
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.engine.args import EngineArgs
from octavo.engine.llm_engine import LLMEngine
from octavo.engine.outputs import OutputKind
from octavo.sampling_params import SamplingParams

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "seats 16": {"max_num_seqs": 16},
    "seats 160": {"max_num_seqs": 160},
    "chunk 128": {"chunked_prefill_size": 128},
    "auto-tune": {"auto_tune": True},
}


@dataclass(frozen=True)
class Load:
    """num_clients ask at once; each asks again when it has its answer, or, in waves, when all have theirs."""

    num_clients: int
    prompt_len: int
    output_len: int
    waves: bool = False


LOADS = {"crowd": Load(160, 40, 96), "long": Load(32, 500, 48), "waves": Load(128, 60, 48, waves=True)}


def measure(model: Path, load: Load, settings: dict[str, Any], seconds: float) -> tuple[float, dict[str, Any]]:
    """(generated tokens per second, settings in force at the end)."""
    engine = LLMEngine.from_engine_args(EngineArgs(model=str(model), max_model_len=2048, kv_cache_memory=1.5, **settings))
    rng = random.Random(1)
    num_sent = 0

    def send(count: int) -> None:
        nonlocal num_sent
        for _ in range(count):
            prompt = [rng.randrange(100, 40000) for _ in range(rng.randrange(load.prompt_len // 2, 3 * load.prompt_len // 2))]
            length = rng.randrange(load.output_len // 2, 3 * load.output_len // 2)
            params = SamplingParams(temperature=0.0, max_tokens=length, ignore_eos=True)
            engine.add_request(str(num_sent), prompt, params, output_kind=OutputKind.FINAL_ONLY)
            num_sent += 1

    started_s = time.monotonic()
    marks: list[tuple[float, int]] = []
    while (now_s := time.monotonic()) - started_s < seconds:
        missing = load.num_clients - engine.get_num_unfinished_requests()
        if not load.waves or missing == load.num_clients:
            send(missing)
        engine.step()
        if now_s - started_s > seconds / 3:
            marks.append((now_s, engine.ledger.totals.generation_tokens))
    rate = (marks[-1][1] - marks[0][1]) / (marks[-1][0] - marks[0][0])
    scheduler, cache = engine.resolved_config.scheduler, engine.resolved_config.cache
    final = {"seats": scheduler.max_num_seqs, "chunk": scheduler.chunked_prefill_size, "block": cache.block_size}
    tunings = engine.stats().num_tunings
    engine.shutdown()
    return rate, {**final, "tunings": tunings}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("model", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--loads", nargs="*", choices=list(LOADS), default=list(LOADS))
    parser.add_argument("--settings", nargs="*", choices=list(SETTINGS), default=list(SETTINGS))
    arguments = parser.parse_args()
    for name in arguments.loads:
        rates: dict[str, float] = {}
        for setting in arguments.settings:
            rates[setting], final = measure(arguments.model, LOADS[name], SETTINGS[setting], arguments.seconds)
            print(json.dumps({"load": name, "setting": setting, "tokens_per_s": round(rates[setting], 1), **final}), flush=True)
        if "auto-tune" in rates and len(rates) > 1:
            fixed = max(rate for setting, rate in rates.items() if setting != "auto-tune")
            print(json.dumps({"load": name, "auto_against_best_fixed": round(rates["auto-tune"] / fixed, 3)}), flush=True)


if __name__ == "__main__":
    main()
