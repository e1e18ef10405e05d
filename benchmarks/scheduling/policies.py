"""What each policy does to waiting times on a bursty two-tenant load; what a step of the scheduler costs with a long queue.

Run:  python benchmarks/scheduling/policies.py [--seconds 600] [--json FILE]
The machine is virtual: the real scheduler and block pool, and a worker whose step takes base + prefill + decode time, so that
the figures are the same everywhere and come in seconds. The cost of a step is measured on the machine it runs on.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from octavo.config.resolved import ResolvedSchedulerConfig
from octavo.kvcache.manager import KVCacheManager
from octavo.request import Request
from octavo.sampling_params import SamplingParams
from octavo.scheduler.estimator import Estimator
from octavo.scheduler.policies.registry import make_policy
from octavo.scheduler.scheduler import Scheduler
from octavo.scheduler.step_time import StepShape
from octavo.sequence import Sequence
from octavo.step import SampledTokens, StepPlan, StepResult

POLICIES = ("fcfs", "sjf", "priority", "fair")
GREEDY, LIGHT = "greedy", "light"
BASE_S, PREFILL_S, DECODE_S, ATTENDED_S = 0.005, 0.0004, 0.001, 1e-8
NUM_BLOCKS, BLOCK_SIZE = 4096, 16


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds to the first token."""

    mean: float
    p99: float

    @classmethod
    def of(cls, waits: list[float]) -> Waits:
        ordered = sorted(waits)
        return cls(round(statistics.fmean(ordered), 3), round(ordered[int(0.99 * (len(ordered) - 1))], 3))


@dataclass(frozen=True, slots=True)
class Row:
    """One policy on the load. finished_s: when the last request was done."""

    policy: str
    all: Waits
    greedy: Waits
    light: Waits
    finished_s: float
    preemptions: int


def load(seconds: float, seed: int = 1) -> list[Sequence]:
    """A greedy tenant sends 24 requests at once every 30 s, mostly short ones and some very long; a light one asks every 2 s.

    Together they ask for about as much as the machine can do while a burst lasts and leave it idle before the next one.
    """
    rng, requests = random.Random(seed), []
    for burst in range(int(seconds // 30)):
        for _ in range(24):
            is_long = rng.random() < 0.2
            prompt, output = (
                (rng.randint(2000, 4000), rng.randint(200, 400)) if is_long else (rng.randint(50, 300), rng.randint(10, 40))
            )
            requests.append((30.0 * burst + rng.uniform(0, 0.5), GREEDY, prompt, output))
    at_s = 0.0
    while (at_s := at_s + rng.expovariate(0.5)) < seconds:
        requests.append((at_s, LIGHT, rng.randint(50, 300), rng.randint(10, 40)))
    requests.sort()
    return [
        make_sequence(seq_id, prompt, output, at_s, 0 if tenant == LIGHT else 1, tenant)
        for seq_id, (at_s, tenant, prompt, output) in enumerate(requests)
    ]


def make_sequence(seq_id: int, num_prompt: int, num_output: int, arrival_s: float, priority: int, tenant: str) -> Sequence:
    request = Request(
        request_id=str(seq_id),
        prompt_token_ids=[seq_id] * num_prompt,
        sampling=SamplingParams(),
        seed=0,
        max_tokens=num_output,
        stop_token_ids=[],
        arrival_s=arrival_s,
        priority=priority,
        tenant=tenant,
    )
    return Sequence(seq_id, request)


def make_scheduler(policy: str, config: ResolvedSchedulerConfig, num_blocks: int = NUM_BLOCKS) -> Scheduler:
    estimator = Estimator()
    manager = KVCacheManager(num_blocks, BLOCK_SIZE, enable_prefix_caching=False)
    return Scheduler(config, manager, make_policy(policy, estimator), estimator)


def run(policy: str, requests: list[Sequence], *, speed: float = 1.0, max_num_seqs: int = 64, tokens: int = 256) -> Row:
    """The load on the virtual machine, which is `speed` times as fast as the formula says."""
    config = ResolvedSchedulerConfig(
        max_num_seqs=max_num_seqs, max_num_batched_tokens=tokens, chunked_prefill_size=tokens, max_model_len=8192
    )
    scheduler, now, waits = make_scheduler(policy, config), 0.0, dict[int, float]()
    pending = list(reversed(requests))
    while pending or scheduler.has_work():
        while pending and pending[-1].request.arrival_s <= now:
            scheduler.add(pending.pop())
        plan = scheduler.schedule(now)
        if plan is None:
            now = pending[-1].request.arrival_s
            continue
        now += step_s(plan) / speed
        sampled = [SampledTokens(share.seq_id, [7]) for share in plan.sequences if share.needs_sample]
        for update in scheduler.settle(plan, StepResult(plan.step_id, sampled), now):
            if update.new_token_ids:
                waits.setdefault(update.seq_id, now - requests[update.seq_id].request.arrival_s)
    by_tenant = {name: [waits[s.seq_id] for s in requests if s.request.tenant == name] for name in (GREEDY, LIGHT)}
    everybody = Waits.of(list(waits.values()))
    greedy = Waits.of(by_tenant[GREEDY] or [0.0])
    return Row(policy, everybody, greedy, Waits.of(by_tenant[LIGHT]), round(now, 1), scheduler.num_preemptions)


def step_s(plan: StepPlan) -> float:
    shape = StepShape.of(plan)
    return BASE_S + PREFILL_S * shape.prefill_tokens + DECODE_S * shape.num_decodes + ATTENDED_S * shape.num_attended


def step_cost(policy: str, num_running: int, num_waiting: int) -> tuple[float, float]:
    """(median, p99) microseconds of schedule plus settle. Every step counts with the best of three equal runs: what the machine
    did beside it is not the scheduler's cost."""
    runs = [_step_times(policy, num_running, num_waiting) for _ in range(3)]
    ordered = sorted(min(times) for times in zip(*runs, strict=True))
    return round(1e6 * statistics.median(ordered), 0), round(1e6 * ordered[int(0.99 * len(ordered))], 0)


def _step_times(policy: str, num_running: int, num_waiting: int, num_steps: int = 300) -> list[float]:
    """Seconds of each step. Answers have 16 to 512 tokens, so that about one ends, and is replaced, in every step."""
    config = ResolvedSchedulerConfig(max_num_seqs=num_running, max_num_batched_tokens=2048, max_model_len=4096)
    scheduler, rng = make_scheduler(policy, config, num_blocks=num_running * 300), random.Random(1)
    for seq_id in range(num_running + num_waiting):
        scheduler.add(
            make_sequence(
                seq_id, rng.randint(8, 64), rng.randint(16, 512), seq_id * 1e-6, rng.randint(0, 3), f"t{rng.randint(0, 19)}"
            )
        )
    now, costs = 1.0, []
    for _ in range(num_steps + 50):
        started = time.perf_counter()
        plan = scheduler.schedule(now)
        planned = time.perf_counter()
        assert plan is not None
        result = StepResult(plan.step_id, [SampledTokens(share.seq_id, [7]) for share in plan.sequences if share.needs_sample])
        settling = time.perf_counter()
        now += 0.02
        scheduler.settle(plan, result, now)
        costs.append((planned - started) + (time.perf_counter() - settling))
    return costs[50:]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    rows = [run(policy, load(chosen.seconds)) for policy in POLICIES]
    half = run("fcfs", [s for s in _renumbered(load(chosen.seconds))], speed=0.5)
    print("| policy | mean TTFT | p99 | greedy: mean | p99 | light: mean | p99 | done at | preemptions |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        cells = (row.all.mean, row.all.p99, row.greedy.mean, row.greedy.p99, row.light.mean, row.light.p99, row.finished_s)
        print(f"| {row.policy} | " + " | ".join(f"{cell:.2f} s" for cell in cells) + f" | {row.preemptions} |")
    print(f"\nlight tenant alone on half the machine: mean {half.light.mean:.2f} s, p99 {half.light.p99:.2f} s")
    fcfs, sjf, fair = rows[0], rows[1], rows[3]
    print(f"sjf against fcfs, mean TTFT: {fcfs.all.mean / sjf.all.mean:.1f} times less")
    print(f"light tenant under fair against alone with half the machine, p99: {fair.light.p99 / half.light.p99:.2f} times\n")
    costs = {}
    print("| policy | 64 running, 0 waiting | 256 running, 0 waiting | 256 running, 10000 waiting |\n|---|---|---|---|")
    for policy in POLICIES:
        costs[policy] = [step_cost(policy, running, waiting) for running, waiting in ((64, 0), (256, 0), (256, 10_000))]
        print(f"| {policy} | " + " | ".join(f"{median:.0f}, p99 {p99:.0f}" for median, p99 in costs[policy]) + " |")
    if chosen.json is not None:
        figures = {"rows": [asdict(row) for row in rows], "half": asdict(half.light), "step_us": costs}
        chosen.json.write_text(json.dumps(figures, indent=1) + "\n")


def _renumbered(requests: list[Sequence]) -> list[Sequence]:
    """The light tenant's requests alone."""
    light = [sequence for sequence in requests if sequence.request.tenant == LIGHT]
    for seq_id, sequence in enumerate(light):
        sequence.seq_id = seq_id
    return light


if __name__ == "__main__":
    main()
