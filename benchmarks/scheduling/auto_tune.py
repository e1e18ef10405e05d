"""What --auto-tune gains or costs against fixed settings, on loads that want different ones.

Run:  python benchmarks/scheduling/auto_tune.py MODEL [--seconds 60] [--loads crowd long chat answers]
      python benchmarks/scheduling/auto_tune.py --virtual [--profile FILE]
For each load the same requests are served by engines that differ in settings alone, in turns of a second (see turns.py).
Generated tokens per second count from a third of the time on, so that the tuner has had time to act. --cpu-time runs one thread
and counts its CPU time, for machines that are not quiet; --virtual computes nothing: cost model instead of a worker.

crowd    160 clients with short prompts: more than there are seats, and room for all of them
long     32 clients with prompts of 500 tokens, answers of 48: the step's tokens are short
chat     48 clients, prompts of 100 and answers of 200 tokens, in a KV cache for 22 of them
answers  48 clients, prompts of 30 and answers of 300 tokens, in a KV cache for 20 of them
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turns import Contestant, Load, OwnClock, take_turns, virtual_core

from octavo.config.engine import EngineConfig
from octavo.config.loading import DEFAULT_MODEL
from octavo.engine.args import EngineArgs
from octavo.engine.core.build import build_core
from octavo.engine.core.engine_core import EngineCore
from octavo.engine.frontend.served_model import locate_model
from octavo.simulator.cost_model import CostModel
from octavo.simulator.profile import Profile, load_profile

LOADS = {"crowd": Load(160, 40, 96), "long": Load(32, 500, 48), "chat": Load(48, 100, 200), "answers": Load(48, 30, 300)}
KV_GIB = {"crowd": 0.75, "long": 0.75, "chat": 0.15, "answers": 0.15}
MAX_MODEL_LEN = 1024
AUTO = "auto-tune"
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "seats 16": {"max_num_seqs": 16},
    "seats 160": {"max_num_seqs": 160, "max_num_batched_tokens": 192},
    "step 256": {"max_num_batched_tokens": 256, "chunked_prefill_size": 256},
    "eager": {"admission": "eager"},
    AUTO: {"auto_tune": True},
}
"""The default, what was found to be best by hand for each load, and what is wrong for most."""

MEASURED = Profile(
    name="SmolLM2-135M-Instruct, Q4_1, two threads of an AMD EPYC",
    cost=CostModel(
        step_s=2.8e-3,
        small_token_s=0.3e-3,
        prefill_token_s=620e-6,
        prefill_pair_s=300e-9,
        decode_seq_s=850e-6,
        context_token_s=1e-6,
    ),
    kv_bytes_per_token=46080,
    max_position=8192,
)
"""Set by hand from steps of 1 to 64 decodes, before the kernels became faster: a calibration says about 390 us per prompt
token and per decode now."""

MakeCore = Callable[[EngineConfig, OwnClock], EngineCore]


def contestants(
    name: str, settings: list[str], make_core: MakeCore, source: Callable[[], float], **args: Any
) -> list[Contestant]:
    """An engine per setting for the load of that name. args: further engine options."""
    made = []
    for setting in settings:
        options = EngineArgs(max_model_len=MAX_MODEL_LEN, kv_cache_memory=KV_GIB[name], **SETTINGS[setting], **args)
        clock = OwnClock(source)
        made.append(Contestant(setting, make_core(options.create_engine_config(), clock), LOADS[name], clock))
    return made


def report(name: str, played: list[Contestant], from_s: float) -> None:
    """A line for each setting, and one for what the tuner is worth."""
    rates = {contestant.name: contestant.rate(from_s) for contestant in played}
    for contestant in played:
        figures = {
            "tokens_per_s": round(rates[contestant.name], 1),
            "itl_p50_ms": round(1e3 * contestant.itl_s(from_s, 0.5), 1),
            "itl_p99_ms": round(1e3 * contestant.itl_s(from_s, 0.99), 1),
            "preemptions": contestant.core.stats().num_preemptions,
        }
        print(json.dumps({"load": name, "setting": contestant.name, **figures, "changes": contestant.changes}), flush=True)
    if AUTO in rates and len(rates) > 1:
        best = max(rate for setting, rate in rates.items() if setting != AUTO)
        worth = {"against_best_fixed": round(rates[AUTO] / best, 3)}
        if "default" in rates:
            worth["against_default"] = round(rates[AUTO] / rates["default"], 3)
        print(json.dumps({"load": name, AUTO: worth}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--loads", nargs="*", choices=list(LOADS), default=list(LOADS))
    parser.add_argument("--settings", nargs="*", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--virtual", action="store_true")
    parser.add_argument("--profile", type=Path)
    arguments = parser.parse_args()
    profile = load_profile(arguments.profile) if arguments.profile else MEASURED

    def make_core(config: EngineConfig, clock: OwnClock) -> EngineCore:
        if arguments.virtual:
            return virtual_core(config, clock, profile)
        return build_core(locate_model(config), clock=clock).core

    args: dict[str, Any] = {"model": arguments.model, **({"num_threads": 1} if arguments.cpu_time else {})}
    # A virtual clock only moves when it is told to.
    source = (lambda: 0.0) if arguments.virtual else time.process_time if arguments.cpu_time else time.perf_counter
    for name in arguments.loads:
        played = contestants(name, arguments.settings, make_core, source, **args)
        take_turns(played, arguments.seconds)
        report(name, played, arguments.seconds / 3)


if __name__ == "__main__":
    main()
