"""Driving a Worker without a scheduler: plans written by hand, for the worker's and the backends' tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tests import tiny_families, tiny_models
from tests.checkpoints import folder_shapes, open_checkpoint
from tests.configs import resolved_config

from octavo.loader.checkpoint import Checkpoint, open_config
from octavo.sampling_params import SamplingParams
from octavo.step import NewSequence, SampledTokens, ScheduledSequence, ShareKind, StepPlan, StepResult, TokenLogprobs
from octavo.worker.program import load_parameters
from octavo.worker.worker import Worker

BLOCK_SIZE = 8
NUM_BLOCKS = 128

Outcome: TypeAlias = tuple[list[int], list[TokenLogprobs], dict[int, TokenLogprobs]]
"""Tokens, logprobs and prompt logprobs of a request."""


def tiny_checkpoint(folder: Path, name: str) -> Checkpoint:
    """One of the variants of tiny_models or tiny_families, written to folder and opened."""
    values = (tiny_models.VARIANTS | tiny_families.VARIANTS)[name].config
    config, _ = open_config(tiny_models.write_folder(folder, values, {}))
    return open_checkpoint(tiny_models.write_folder(folder, values, tiny_models.tiny_tensors(values, folder_shapes(config))))


def make_worker(
    checkpoint: Checkpoint,
    device: str = "reference",
    kv_cache_dtype: str = "float32",
    dtype: str = "float32",
    *,
    overlap: bool = False,
    **scheduler: int,
) -> Worker:
    """A worker with blocks of 8 tokens and room for 128 of them."""
    limits: dict[str, Any] = {"max_num_seqs": 8, "max_num_batched_tokens": 256, "max_model_len": 200, **scheduler}
    config = resolved_config(NUM_BLOCKS, BLOCK_SIZE, kv_cache_dtype=kv_cache_dtype, dtype=dtype, device=device, **limits)
    return Worker(config, load_parameters(config, checkpoint), overlap=overlap)


def run_step(worker: Worker, plan: StepPlan) -> StepResult:
    """Start a plan and finish it."""
    worker.start(plan)
    return worker.finish()


@dataclass
class Request:
    """One sequence of a test and what came back for it."""

    prompt: list[int]
    sampling: SamplingParams
    seed: int = 1
    choice: int = 0
    stop_token_ids: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: dict[int, TokenLogprobs] = field(default_factory=dict)
    num_computed: int = 0
    num_told: int = 0
    num_accepted: int = 0


class Driver:
    """Sequences with ids by order of `requests`; each owns a fixed run of blocks.

    guess  drafts for a request that has told all it knows; none without it
    """

    def __init__(
        self, worker: Worker, requests: list[Request], guess: Callable[[Request], list[int]] = lambda request: []
    ) -> None:
        self.worker = worker
        self.guess = guess
        self.requests = requests
        self.num_steps = 0
        self._blocks_each = min(NUM_BLOCKS // len(requests), 200 // BLOCK_SIZE)

    def run(self, num_tokens: int, chunk: int = 256) -> list[Outcome]:
        """Step all requests together until each has num_tokens outputs; prompts go in chunks. Returns their outcomes."""
        while any(len(request.tokens) < num_tokens for request in self.requests):
            ids = [seq_id for seq_id, request in enumerate(self.requests) if len(request.tokens) < num_tokens]
            result = self.step([self.scheduled(seq_id, chunk) for seq_id in ids])
            assert not result.failed, result.failed
        return [(tokens[:num_tokens], logprobs[:num_tokens], prompt) for tokens, logprobs, prompt in self.outcomes()]

    def outcomes(self) -> list[Outcome]:
        """Tokens, logprobs and prompt logprobs of each request so far."""
        return [(request.tokens, request.logprobs, request.prompt_logprobs) for request in self.requests]

    def scheduled(self, seq_id: int, chunk: int = 256) -> ScheduledSequence:
        """The next share of a sequence; new ones bring everything."""
        request = self.requests[seq_id]
        token_ids = request.prompt + request.tokens
        num_new = min(chunk, len(token_ids) - request.num_computed)
        new, blocks, told, drafts = None, [], token_ids[request.num_told :], []
        if not request.num_told:
            new = NewSequence(
                token_ids, len(request.prompt), request.choice, request.seed, request.sampling, request.stop_token_ids
            )
            blocks = list(range(seq_id * self._blocks_each, (seq_id + 1) * self._blocks_each))[::-1]
            told = []
        request.num_told = len(token_ids)
        needs_sample = request.num_computed + num_new == len(token_ids)
        kind = ShareKind.DECODE if request.tokens and request.num_computed >= len(token_ids) - 1 else ShareKind.PREFILL
        if kind is ShareKind.DECODE:
            drafts = self.guess(request)
        first = request.num_computed
        request.num_computed += num_new
        return ScheduledSequence(
            seq_id, kind, first, num_new + len(drafts), blocks, needs_sample, told, new, draft_token_ids=drafts
        )

    def step(self, sequences: list[ScheduledSequence], removed: list[int] | None = None) -> StepResult:
        """Execute one plan and take its results in."""
        self.num_steps += 1
        result = run_step(self.worker, StepPlan(self.num_steps, sequences, [], removed or []))
        assert result.step_id == self.num_steps
        return self.take(result)

    def take(self, result: StepResult) -> StepResult:
        """Take the results of a step in."""
        for sampled in result.sampled:
            self._take(sampled)
        for entries in result.prompt_logprobs:
            for offset, entry in enumerate(entries.entries):
                self.requests[entries.seq_id].prompt_logprobs[entries.first_position + offset] = entry
        return result

    def preempt(self, seq_id: int) -> None:
        """Have the worker forget a sequence; it comes back whole with its next share."""
        run_step(self.worker, StepPlan(0, [], [], [seq_id]))
        self.requests[seq_id].num_told = 0
        self.requests[seq_id].num_computed = 0

    def _take(self, sampled: SampledTokens) -> None:
        request = self.requests[sampled.seq_id]
        request.tokens += sampled.token_ids
        request.logprobs += sampled.logprobs
        request.num_computed += sampled.num_accepted
        request.num_accepted += sampled.num_accepted
