"""simulate: a trace over one replica or many, with requests sent by the trace's clock, by free places, or both."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

from octavo.simulator.cost_model import CostModel
from octavo.simulator.recorder import Recorder
from octavo.simulator.replica import EngineSpec, Replica
from octavo.simulator.trace import Trace

ROUTINGS = ("round-robin", "least-loaded")
_REPORT_EVERY = 256
"""Requests between two calls of on_progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    """How a trace is run.

    routing          round-robin, or least-loaded: fewest requests that have not ended (ties: the first such replica)
    max_concurrency  most requests under way in the whole fleet; others are held back at the sender. None: no bound
    jumps            take runs of equal decode steps at once; results are the same without
    """

    engine: EngineSpec
    num_replicas: int = 1
    routing: str = "round-robin"
    max_concurrency: int | None = None
    jumps: bool = True


def simulate(trace: Trace, spec: FleetSpec, cost: CostModel, on_progress: Callable[[int], None] | None = None) -> Recorder:
    """Run the trace to its last token. on_progress hears how many requests have been sent.

    A request longer than max_model_len is refused, as a server would.
    """
    recorder = Recorder(len(trace))
    replicas = [
        Replica(index, spec.engine, trace, cost, recorder, jumps=spec.jumps) for index in range(spec.num_replicas)
    ]
    fits = (trace.num_prompt + trace.num_output <= spec.engine.max_model_len).tolist()
    ends_s: list[float] = []
    num_sent = 0
    for request, due_s in enumerate(trace.arrival_s.tolist()):
        if not fits[request]:
            recorder.num_refused += 1
            continue
        if spec.max_concurrency is not None and num_sent >= spec.max_concurrency:
            due_s = max(due_s, _next_end(replicas, recorder, ends_s))
        target = _route(replicas, spec.routing, num_sent, due_s)
        target.add(request, due_s)
        num_sent += 1
        if on_progress is not None and num_sent % _REPORT_EVERY == 0:
            on_progress(request)
    for replica in replicas:
        replica.advance(math.inf)
    if on_progress is not None:
        on_progress(len(trace))
    return recorder


def _route(replicas: list[Replica], routing: str, num_sent: int, now_s: float) -> Replica:
    """The replica for the next request. Its state is as of now, and so is that of all others if the routing looks at them."""
    if routing == "round-robin":
        replica = replicas[num_sent % len(replicas)]
        replica.advance(now_s)
        return replica
    for replica in replicas:
        if replica.clock_s < now_s:
            replica.advance(now_s)
    return min(replicas, key=lambda replica: replica.num_live)


def _next_end(replicas: list[Replica], recorder: Recorder, ends_s: list[float]) -> float:
    """Take the earliest end that no request was sent for yet; replicas are run as far as it takes to know it.

    ends_s: a heap of the ends that are known already.
    """
    while True:
        for end_s in recorder.ends_s:
            heapq.heappush(ends_s, end_s)
        recorder.ends_s.clear()
        earliest_s = ends_s[0] if ends_s else math.inf
        behind = sorted((s for s in replicas if s.num_live and s.clock_s < earliest_s), key=lambda replica: replica.clock_s)
        if not behind:
            return heapq.heappop(ends_s)
        # No further than the next replica's clock: one that is ahead must not miss what is sent for an end on another.
        behind[0].tick(min(behind[1].clock_s, earliest_s) if len(behind) > 1 else earliest_s)
