"""Recorder: what happened to every request of a simulation, and what the steps were like."""

from __future__ import annotations

import math

from octavo.simulator.histogram import Histogram
from octavo.simulator.timeline import Timeline


class Recorder:
    """Columns over the requests of a trace, filled in while it is simulated; nan where nothing happened (yet)."""

    __slots__ = (
        "arrival_s",
        "cached_tokens",
        "end_s",
        "ends_s",
        "finish_s",
        "first_token_s",
        "itl",
        "num_preemptions",
        "num_refused",
        "num_steps",
        "peak_used_blocks",
        "prompt_tokens",
        "replica",
        "timeline",
    )

    def __init__(self, num_requests: int) -> None:
        self.arrival_s = [math.nan] * num_requests
        """When it was sent: as in the trace, or later where a bound on concurrency held it back."""
        self.first_token_s = [math.nan] * num_requests
        self.finish_s = [math.nan] * num_requests
        self.replica = [-1] * num_requests
        self.itl = Histogram()
        self.timeline = Timeline()
        self.num_refused = 0
        """Requests that no replica could ever hold: prompt and output are longer than the context."""
        self.num_steps = 0
        self.num_preemptions = 0
        self.prompt_tokens = 0
        """Of requests at their first admission; cached_tokens: those of them that were found in the prefix cache."""
        self.cached_tokens = 0
        self.peak_used_blocks = 0
        """Most blocks in use on one replica at the end of a step."""
        self.end_s = 0.0
        self.ends_s: list[float] = []
        """finish_s in the order in which the ends were found; the driver takes them out where it needs them."""

    def step(
        self, start_s: float, end_s: float, *, steps: int, running: int, waiting: int, used_blocks: int, tokens: int
    ) -> None:
        """`steps` steps of one replica, from start to end, with `tokens` tokens generated in all."""
        self.num_steps += steps
        if used_blocks > self.peak_used_blocks:
            self.peak_used_blocks = used_blocks
        if end_s > self.end_s:
            self.end_s = end_s
        self.timeline.add(start_s, end_s, running, waiting, used_blocks, tokens)

    def finish(self, request: int, now_s: float) -> None:
        """The last token of a request is there."""
        self.finish_s[request] = now_s
        self.ends_s.append(now_s)
