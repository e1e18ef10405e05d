"""ModelRunner: shares of sequences to forward passes, logits to tokens and logprobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Generic

from octavo.ops.interface import Logits, Program, Sampling
from octavo.step import PromptLogprobs, SampledToken
from octavo.worker.batch import Batch, ResidentSequence, Segment
from octavo.worker.sampler import Sampler

PROMPT_LOGIT_ROWS = 64
"""Most logits per forward pass for prompt logprobs. At a vocabulary of 256k, 64 rows are 64 MB; a longer share with prompt
logprobs is computed in several passes, which by the equal-bytes rule changes nothing but the time."""


class ModelRunner(Generic[Logits]):
    """Runs a program over a batch. What goes wrong with one sequence is recorded, see `run`."""

    def __init__(self, backend: Sampling[Logits], program: Program[Logits], batch: Batch) -> None:
        self._program = program
        self._batch = batch
        self._sampler = Sampler(backend, batch)

    def run(self, shares: Sequence[Segment], failed: dict[int, str]) -> tuple[list[SampledToken], list[PromptLogprobs]]:
        """Compute all shares, then sample where asked. Sequences whose sampling or logprobs raised go into failed (id ->
        reason) and yield nothing more."""
        sampled: list[SampledToken] = []
        prompt_logprobs: list[PromptLogprobs] = []
        for shares_of_pass in forward_passes(shares):
            alive = [share for share in shares_of_pass if share.state.seq_id not in failed]
            if not alive:
                continue
            logits = self._program.run(self._batch.step_inputs(alive))
            sampled += self._read_logits(logits, alive, prompt_logprobs, failed)
        return sampled, prompt_logprobs

    def _read_logits(
        self, logits: Logits, shares: Sequence[Segment], prompt_logprobs: list[PromptLogprobs], failed: dict[int, str]
    ) -> list[SampledToken]:
        """Walk the logits, which stand share by share: prompt rows first, then the row to sample from."""
        states: list[ResidentSequence] = []
        rows: list[int] = []
        next_row = 0
        for share in shares:
            first_row = next_row
            next_row += share.prompt_logit_rows + share.needs_sample
            if share.prompt_logit_rows:
                try:
                    prompt_logprobs.append(self._sampler.prompt_logprobs(logits, share, first_row))
                except Exception as error:  # whatever it is, it must end this sequence and no other
                    failed[share.state.seq_id] = f"prompt logprobs failed: {error}"
                    continue
            if share.needs_sample:
                states.append(share.state)
                rows.append(next_row - 1)
        return self._sampler.sample(logits, states, rows, failed)


def forward_passes(shares: Sequence[Segment], max_prompt_rows: int = PROMPT_LOGIT_ROWS) -> Iterator[list[Segment]]:
    """Split shares into passes with at most max_prompt_rows logits for prompt logprobs each; usually there is one pass.

    A share that does not fit is cut after as many positions as do; its rest comes in the next pass.
    """
    while shares:
        room = max_prompt_rows
        now: list[Segment] = []
        later: list[Segment] = []
        for share in shares:
            if share.prompt_logit_rows <= room:
                now.append(share)
                room -= share.prompt_logit_rows
                continue
            if room:
                now.append(replace(share, num_new=room, needs_sample=False, prompt_logit_rows=room))
            later.append(
                replace(
                    share,
                    first=share.first + room,
                    num_new=share.num_new - room,
                    prompt_logit_rows=share.prompt_logit_rows - room,
                )
            )
            room = 0
        yield now
        shares = later
