"""VirtualEngine: a scheduler whose worker takes the time that a formula says, on a clock of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from octavo.config.resolved import ResolvedSchedulerConfig
from octavo.kvcache.manager import KVCacheManager
from octavo.scheduler.estimator import Estimator
from octavo.scheduler.policies.registry import make_policy
from octavo.scheduler.scheduler import Scheduler
from octavo.scheduler.step_time import StepShape
from octavo.sequence import Sequence
from octavo.step import SampledTokens, StepPlan, StepResult

BASE_S, PREFILL_S, DECODE_S, ATTENDED_S = 0.005, 0.0005, 0.001, 2e-8
BLOCK_SIZE = 16


def step_seconds(plan: StepPlan) -> float:
    """What the step costs on the virtual machine."""
    shape = StepShape.of(plan)
    return BASE_S + PREFILL_S * shape.prefill_tokens + DECODE_S * shape.num_decodes + ATTENDED_S * shape.num_attended


@dataclass
class Served:
    """What became of one sequence: when it was first in a step, and when each of its tokens was there."""

    sequence: Sequence
    started_s: float | None = None
    tokens_s: list[float] = field(default_factory=list)


class VirtualEngine:
    """`run` feeds arrivals when their time comes; `service` counts (prompt tokens computed, tokens generated) per tenant."""

    def __init__(
        self, policy: str, *, num_blocks: int = 4096, weights: dict[str, float] | None = None, **scheduler: Any
    ) -> None:
        values: dict[str, Any] = {
            "max_num_seqs": 16,
            "max_num_batched_tokens": 256,
            "chunked_prefill_size": 128,
            "max_model_len": 8192,
        }
        values.update(scheduler)
        values["max_model_len"] = min(values["max_model_len"], num_blocks * BLOCK_SIZE)
        self.config = ResolvedSchedulerConfig(scheduler_policy=policy, **values)
        estimator = Estimator()
        manager = KVCacheManager(num_blocks, BLOCK_SIZE, enable_prefix_caching=False)
        self.scheduler = Scheduler(self.config, manager, make_policy(policy, estimator, weights), estimator)
        self.now = 0.0
        self.served: dict[int, Served] = {}
        self.waiting: dict[int, Sequence] = {}
        """Those that were never in a step."""
        self.plans: list[StepPlan] = []
        self._pending: list[Sequence] = []

    def run(self, arrivals: Iterable[Sequence]) -> None:
        """All of them, to the end."""
        self._pending = sorted(arrivals, key=lambda sequence: sequence.request.arrival_s, reverse=True)
        while self._pending or self.scheduler.has_work():
            self.step()

    def step(self) -> StepPlan | None:
        while self._pending and self._pending[-1].request.arrival_s <= self.now:
            self.add(self._pending.pop())
        plan = self.scheduler.schedule(self.now)
        if plan is None:
            if self._pending:
                self.now = self._pending[-1].request.arrival_s
            return None
        self.plans.append(plan)
        for share in plan.sequences:
            if self.waiting.pop(share.seq_id, None) is not None:
                self.served[share.seq_id].started_s = self.now
        self.now += step_seconds(plan)
        sampled = [SampledTokens(share.seq_id, [7]) for share in plan.sequences if share.needs_sample]
        for update in self.scheduler.settle(plan, StepResult(plan.step_id, sampled), self.now):
            if update.new_token_ids:
                self.served[update.seq_id].tokens_s.append(self.now)
        return plan

    def add(self, sequence: Sequence) -> None:
        self.served[sequence.seq_id] = Served(sequence)
        self.waiting[sequence.seq_id] = sequence
        self.scheduler.add(sequence)
