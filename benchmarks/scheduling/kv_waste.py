"""How much KV memory paging wastes, and how many requests it holds against reserving the longest length for each.

Run:  python benchmarks/scheduling/kv_waste.py [--block-size 8 16 32] [--slots 65536] [--requests 1000]
The real scheduler and block pool under a saturating mixed load; the model is replaced by one that samples token 7. Lengths are
drawn as those of the conversations in the PagedAttention paper (Kwon et al., 2023): prompts of 161 tokens and answers of 338 in
the mean, both log-normal, 2,048 together at most. Prompts are all different: sharing would only flatter the figures.

waste        allocated slots without a token, as a share of all allocated ones, mean over the steps with a full house
concurrency  mean number of requests in the cache then
contiguous   requests the same bytes hold if each reserves 2,048 slots for itself
"""

from __future__ import annotations

import argparse
import json
import random
import statistics

from octavo.config.resolved import ResolvedSchedulerConfig
from octavo.kvcache.manager import KVCacheManager
from octavo.kvcache.survey import memory_report
from octavo.request import Request
from octavo.sampling_params import SamplingParams
from octavo.scheduler.policies.registry import make_policy
from octavo.scheduler.scheduler import Scheduler
from octavo.sequence import Sequence
from octavo.step import SampledTokens, StepPlan, StepResult

MAX_MODEL_LEN = 2048
MEAN_PROMPT, MEAN_OUTPUT = 161, 338
SIGMA = 1.0
NEVER = 2**31 - 1


def sequences(count: int, seed: int) -> list[Sequence]:
    """The load; equal seeds give equal loads."""
    rng = random.Random(seed)
    made = []
    for seq_id in range(count):
        prompt = min(MAX_MODEL_LEN // 2, draw(rng, MEAN_PROMPT))
        output = min(MAX_MODEL_LEN - prompt, draw(rng, MEAN_OUTPUT))
        token_ids = [rng.randrange(49152) for _ in range(prompt)]
        request = Request(
            request_id=str(seq_id),
            prompt_token_ids=token_ids,
            sampling=SamplingParams(max_tokens=output),
            seed=0,
            max_tokens=output,
            stop_token_ids=[NEVER],
            arrival_s=float(seq_id),
        )
        made.append(Sequence(seq_id, request))
    return made


def draw(rng: random.Random, mean: float) -> int:
    """Log-normal with this mean, at least 1."""
    return max(1, round(mean * rng.lognormvariate(-(SIGMA**2) / 2, SIGMA)))


def answer(plan: StepPlan) -> StepResult:
    return StepResult(plan.step_id, [SampledTokens(share.seq_id, [7]) for share in plan.sequences if share.needs_sample])


def measure(block_size: int, num_blocks: int, num_requests: int, seed: int) -> dict[str, float]:
    """Run the load through; figures of every tenth step in which requests waited for room."""
    manager = KVCacheManager(num_blocks, block_size)
    config = ResolvedSchedulerConfig(
        max_num_seqs=4096, max_num_batched_tokens=8192, chunked_prefill_size=2048, max_model_len=MAX_MODEL_LEN
    )
    scheduler = Scheduler(config, manager, make_policy("fcfs"))
    for sequence in sequences(num_requests, seed):
        scheduler.add(sequence)
    waste, concurrency, usage = [], [], []
    num_steps = 0
    while scheduler.has_work():
        plan = scheduler.schedule(float(num_steps))
        assert plan is not None
        scheduler.settle(plan, answer(plan), float(num_steps))
        num_steps += 1
        if scheduler.num_waiting and num_steps > MEAN_OUTPUT and num_steps % 10 == 0:
            report = memory_report(manager, scheduler.running(), 0)
            waste.append(report.waste)
            concurrency.append(scheduler.num_running)
            usage.append(report.num_used / num_blocks)
    assert manager.num_free == num_blocks, "blocks have leaked"
    contiguous = num_blocks * block_size // MAX_MODEL_LEN
    mean = statistics.fmean(concurrency)
    return {
        "block_size": block_size,
        "num_blocks": num_blocks,
        "steps": num_steps,
        "waste_percent": round(100 * statistics.fmean(waste), 2),
        "usage_percent": round(100 * statistics.fmean(usage), 1),
        "concurrency": round(mean, 1),
        "contiguous": contiguous,
        "ratio": round(mean / contiguous, 2),
        "preemptions": scheduler.num_preemptions,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--block-size", type=int, nargs="*", default=[8, 16, 32, 64])
    parser.add_argument("--slots", type=int, default=65536, help="tokens the cache holds")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for block_size in arguments.block_size:
        figures = measure(block_size, arguments.slots // block_size, arguments.requests, arguments.seed)
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
