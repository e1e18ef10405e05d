"""ModelRunner: segments of sequences to forward passes, logits to tokens and logprobs, hidden states to embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Generic

from octavo.ops.interface import Logits, Program, Sampling
from octavo.step import PooledVector, PromptLogprobs, SampledTokens, StepResult
from octavo.worker.batch import Batch, ResidentSequence, Segment
from octavo.worker.forcing import append_forced
from octavo.worker.launcher import Launcher
from octavo.worker.masks import Masks
from octavo.worker.sampler import Sampler

EXTRA_LOGIT_ROWS = 64
"""Most logits per forward pass beside the one per sequence that samples: for prompt logprobs and for drafts. A longer share
with prompt logprobs is computed in several passes, which by the equal-bytes rule changes nothing but the time."""


class ModelRunner(Generic[Logits]):
    """Runs a program over a batch, one step at a time. What goes wrong with one sequence is recorded, see `start`."""

    def __init__(
        self,
        backend: Sampling[Logits],
        program: Program[Logits],
        batch: Batch,
        launcher: Launcher[Logits],
        *,
        forces_tokens: bool = True,
    ) -> None:
        """forces_tokens: see append_forced."""
        self._forces_tokens = forces_tokens
        self._program = program
        self._batch = batch
        self._launcher = launcher
        self._masks = Masks(batch, row_id)
        self._sampler = Sampler(backend, batch, self._masks)
        self._passes: Iterator[list[Segment]] = iter(())
        self._running: list[Segment] = []
        """Of the forward pass in progress."""
        self._failed: dict[int, str] = {}

    def start(self, segments: Sequence[Segment], failed: dict[int, str]) -> None:
        """Begin to compute all segments. Sequences whose sampling or logprobs raise go into failed (id -> reason) and yield
        nothing more."""
        self._passes, self._failed = forward_passes(segments), failed
        self._launch()

    def finish(self, result: StepResult) -> None:
        """Wait for what was started, sample and pool where asked, into the result. Raises what a forward pass raised."""
        while self._running:
            logits = self._launcher.wait()
            chosen = self._read_logits(logits, self._running, result.prompt_logprobs)
            if self._forces_tokens:
                append_forced(self._batch, self._running, chosen)
            result.sampled += chosen
            result.pooled += self._read_hidden(self._running)
            self._launch()

    def _launch(self) -> None:
        """Begin the next forward pass, if there is one."""
        for segments in self._passes:
            self._running = [segment for segment in segments if segment.state.seq_id not in self._failed]
            if self._running:
                self._launcher.start(partial(self._program.run, self._batch.step_inputs(self._running)))
                self._masks.prepare(self._running, self._failed)
                return
        self._running = []

    def _read_logits(
        self, logits: Logits, segments: Sequence[Segment], prompt_logprobs: list[PromptLogprobs]
    ) -> list[SampledTokens]:
        """Walk the logits, which stand segment by segment: prompt rows first, then those to sample from."""
        states: list[ResidentSequence] = []
        rows: list[int] = []
        drafted: list[Segment] = []
        next_row = 0
        for segment in segments:
            first_row = next_row
            next_row += segment.extra_logit_rows + segment.needs_sample
            if segment.state.seq_id in self._failed:
                continue
            if segment.prompt_logit_rows:
                try:
                    prompt_logprobs.append(self._sampler.prompt_logprobs(logits, segment, first_row))
                except Exception as error:  # whatever it is, it must end this sequence and no other
                    self._failed[segment.state.seq_id] = f"prompt logprobs failed: {error}"
                    continue
            if segment.num_drafts:
                drafted.append(segment)
                states += behind_drafts(segment)
                rows += range(next_row - segment.num_drafts - 1, next_row)
            elif segment.needs_sample:
                states.append(segment.state)
                rows.append(next_row - 1)
        if not drafted:
            return self._sampler.sample(logits, states, rows, self._failed)
        failed: dict[int, str] = {}
        sampled = {tokens.seq_id: tokens for tokens in self._sampler.sample(logits, states, rows, failed)}
        for row, reason in self._masks.failed_rows.items():
            if sampled.pop(row, None) is not None:
                failed[row] = reason
        for segment in drafted:
            drafts = self._batch.drafts(segment.state, segment.num_drafts)
            accept(segment.state.seq_id, drafts, sampled, failed)
        self._failed.update(failed)
        return list(sampled.values())

    def _read_hidden(self, segments: Sequence[Segment]) -> list[PooledVector]:
        """Give the sequences that are pooled their rows of the pass; the vectors of those that have all of them."""
        pooled: list[PooledVector] = []
        next_row = 0
        for segment in segments:
            first_row, next_row = next_row, next_row + segment.num_new
            state = segment.state
            if state.pooler is None or state.seq_id in self._failed:
                continue
            try:
                state.pooler.add(segment.first, self._program.read_hidden(first_row, next_row))
                if segment.first + segment.num_new == state.num_tokens:
                    pooled.append(PooledVector(state.seq_id, state.pooler.vector().astype("<f4").tobytes()))
            except Exception as error:  # whatever it is, it must end this sequence and no other
                self._failed[state.seq_id] = f"pooling failed: {error}"
        return pooled


def behind_drafts(segment: Segment) -> list[ResidentSequence]:
    """The sequence as it stands if none, one, two, ... of its drafts are right, for the sampler.

    All but the first go by ids of their own, below 0: row j of sequence s is row_id(s, j).
    """
    state = segment.state
    rows = range(1, segment.num_drafts + 1)
    return [state, *(replace(state, seq_id=row_id(state.seq_id, j), num_tokens=state.num_tokens + j) for j in rows)]


def row_id(seq_id: int, num_drafts: int) -> int:
    """The id that the sampler knows the row behind so many drafts of a sequence by."""
    return seq_id if num_drafts == 0 else -(seq_id * EXTRA_LOGIT_ROWS + num_drafts)


def accept(seq_id: int, drafts: list[int], sampled: dict[int, SampledTokens], failed: dict[int, str]) -> None:
    """Join what was sampled behind each draft into the tokens of the sequence.

    A draft is right if it is what was sampled in its place. Behind the first wrong one nothing counts, faults included: without
    drafts it would not have been computed. sampled and failed are by row_id; after that by seq_id.
    """
    ids = [row_id(seq_id, j) for j in range(len(drafts) + 1)]
    rows, faults = [sampled.pop(i, None) for i in ids], [failed.pop(i, None) for i in ids]
    tokens = SampledTokens(seq_id, [])
    for index, row in enumerate(rows):
        if row is None:
            failed[seq_id] = faults[index] or "no token was sampled"
            return
        tokens.token_ids += row.token_ids
        tokens.logprobs += row.logprobs
        if index == len(drafts) or row.token_ids[0] != drafts[index]:
            tokens.num_accepted = index
            break
    sampled[seq_id] = tokens


def forward_passes(segments: Sequence[Segment], max_extra_rows: int = EXTRA_LOGIT_ROWS) -> Iterator[list[Segment]]:
    """Split segments into passes with at most max_extra_rows logits beside those that sample; usually there is one pass.

    A segment with too many prompt logprobs is cut after as many positions as fit; its rest comes in the next pass. One with
    drafts is never cut: it waits.
    """
    while segments:
        room = max_extra_rows
        now: list[Segment] = []
        later: list[Segment] = []
        for segment in segments:
            if segment.extra_logit_rows <= room:
                now.append(segment)
                room -= segment.extra_logit_rows
                continue
            if segment.num_drafts:
                later.append(segment)
                continue
            if room:
                now.append(replace(segment, num_new=room, needs_sample=False, prompt_logit_rows=room))
            later.append(
                replace(
                    segment,
                    first=segment.first + room,
                    num_new=segment.num_new - room,
                    prompt_logit_rows=segment.prompt_logit_rows - room,
                )
            )
            room = 0
        yield now
        segments = later
