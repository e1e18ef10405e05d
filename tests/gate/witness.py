"""Witness: what an engine really did while it served. A gate says nothing about a mechanism that never ran."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

from octavo.engine.llm_engine import LLMEngine
from octavo.step import ScheduledSequence, StepPlan

_TASKS = Path("/proc/self/task")


class Witness:
    """Reads every plan that an engine makes from now on. num_together: sequences of the step that had most of them."""

    def __init__(self, engine: LLMEngine) -> None:
        self._shares: dict[int, list[ScheduledSequence]] = defaultdict(list)
        self.num_together = 0
        self.num_steps = 0
        scheduler = engine._core._scheduler
        schedule = scheduler.schedule

        def watched(now: float) -> StepPlan | None:
            plan = schedule(now)
            if plan is not None and plan.sequences:
                self._read(plan)
            return plan

        scheduler.schedule = watched  # type: ignore[method-assign]

    def chunks(self) -> list[tuple[int, list[int]]]:
        """(tokens of a prompt, tokens of each share that first computed a part of it), for every prompt that was computed.

        Left out are sequences with prompt_logprobs, whose prompts are always cut.
        """
        result = []
        for shares in self._shares.values():
            new = shares[0].new
            if new is not None and shares[0].num_computed == 0 and new.sampling.prompt_logprobs is None:
                reached, sizes = 0, []
                for share in shares:
                    if share.num_computed != reached or reached >= new.num_prompt:
                        break
                    sizes.append(share.num_new)
                    reached += share.num_new
                result.append((new.num_prompt, sizes))
        return result

    @property
    def num_cut(self) -> int:
        """Prompts that were computed in more than one share."""
        return sum(len(sizes) > 1 for _, sizes in self.chunks())

    @property
    def num_computed_again(self) -> int:
        """Tokens that were computed more than once."""
        again = 0
        for shares in self._shares.values():
            reached = 0
            for share in shares:
                end = share.num_computed + share.num_new
                again += max(0, min(reached, end) - share.num_computed)
                reached = max(reached, end)
        return again

    def _read(self, plan: StepPlan) -> None:
        self.num_steps += 1
        self.num_together = max(self.num_together, len(plan.sequences))
        for share in plan.sequences:
            self._shares[share.seq_id].append(share)


class ThreadClock:
    """CPU time of this process's threads from now on, as the system counts it (in ticks of usually 10 ms)."""

    def __init__(self) -> None:
        self._before = _ticks()

    def num_busy(self, share: float = 0.2) -> int:
        """Threads that worked at least this share of what the busiest one did."""
        spent = [ticks - self._before.get(task, 0) for task, ticks in _ticks().items()]
        most = max(spent)
        assert most >= 10, "too little was computed to tell"
        return sum(ticks >= share * most for ticks in spent)


def _ticks() -> dict[int, int]:
    result = {}
    for task in os.listdir(_TASKS):
        # The name in parentheses may hold blanks; what follows it is numbers, user and system time the 12th and 13th.
        fields = (_TASKS / task / "stat").read_text().rpartition(")")[2].split()
        result[int(task)] = int(fields[11]) + int(fields[12])
    return result
