"""Small traces and engines the simulator tests share."""

from __future__ import annotations

import math
import random

from octavo.config.resolved import ResolvedSchedulerConfig
from octavo.simulator.cost_model import CostModel
from octavo.simulator.recorder import Recorder
from octavo.simulator.replica import EngineSpec
from octavo.simulator.trace import Shared, Trace, make_trace

COST = CostModel(
    step_s=4e-3,
    small_token_s=0.2e-3,
    prefill_token_s=0.3e-3,
    prefill_pair_s=1e-7,
    decode_seq_s=0.5e-3,
    context_token_s=2e-6,
)


def engine(
    *,
    num_blocks: int = 64,
    block_size: int = 8,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 64,
    chunked_prefill_size: int = 32,
    max_model_len: int = 128,
    enable_prefix_caching: bool = True,
    admission: str = "eager",
) -> EngineSpec:
    scheduler = ResolvedSchedulerConfig(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        chunked_prefill_size=chunked_prefill_size,
        max_model_len=max_model_len,
        admission=admission,
    )
    return EngineSpec(
        scheduler=scheduler, num_blocks=num_blocks, block_size=block_size, enable_prefix_caching=enable_prefix_caching
    )


def random_trace(seed: int, count: int = 60, *, rate: float = 20.0, longest: int = 60, sharing: bool = False) -> Trace:
    """Poisson arrivals of short requests; with sharing, prompts begin with one of three contents."""
    rng = random.Random(seed)
    now_s, arrivals = 0.0, []
    for _ in range(count):
        now_s += rng.expovariate(rate)
        arrivals.append(now_s)
    prompts = [rng.randint(1, longest) for _ in range(count)]
    shared: list[Shared] | None = None
    if sharing:
        shared = [((rng.randrange(3), rng.randint(1, prompt)),) for prompt in prompts]
    return make_trace(
        f"random {seed}",
        arrivals,
        prompts,
        [rng.randint(1, longest) for _ in range(count)],
        tenant=[rng.choice(("a", "b")) for _ in range(count)],
        shared=shared,
    )


def num_finished(recorder: Recorder) -> int:
    """Requests whose last token came."""
    return sum(not math.isnan(finish_s) for finish_s in recorder.finish_s)
