"""Driving a Worker without a scheduler: plans written by hand, for the worker's and the backends' tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import tiny_models
from tests.checkpoints import open_checkpoint, parameter_shapes
from tests.configs import resolved_config

from octavo.loader.checkpoint import Checkpoint, open_config
from octavo.sampling_params import SamplingParams
from octavo.step import NewSequence, SampledToken, ScheduledSequence, StepPlan, StepResult, TokenLogprobs
from octavo.worker.program import load_parameters
from octavo.worker.worker import Worker

BLOCK_SIZE = 8
NUM_BLOCKS = 128


def tiny_checkpoint(folder: Path, name: str) -> Checkpoint:
    """One of tiny_models' variants, written to folder and opened."""
    path = tiny_models.write_folder(folder, tiny_models.VARIANTS[name].config, {})
    config, _ = open_config(path)
    return open_checkpoint(tiny_models.write_tiny_model(path, name, parameter_shapes(config)))


def make_worker(
    checkpoint: Checkpoint,
    device: str = "reference",
    kv_cache_dtype: str = "float32",
    dtype: str = "float32",
    **scheduler: int,
) -> Worker:
    """A worker with blocks of 8 tokens and room for 128 of them."""
    limits: dict[str, Any] = {"max_num_seqs": 8, "max_num_batched_tokens": 256, "max_model_len": 200, **scheduler}
    config = resolved_config(NUM_BLOCKS, BLOCK_SIZE, kv_cache_dtype=kv_cache_dtype, dtype=dtype, device=device, **limits)
    return Worker(config, load_parameters(config, checkpoint))


@dataclass
class Request:
    """One sequence of a test and what came back for it."""

    prompt: list[int]
    sampling: SamplingParams
    seed: int = 1
    choice: int = 0
    stop_token_ids: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs | None] = field(default_factory=list)
    prompt_logprobs: dict[int, TokenLogprobs] = field(default_factory=dict)
    num_computed: int = 0
    introduced: bool = False

    def outcome(self) -> tuple[object, ...]:
        return self.tokens, self.logprobs, self.prompt_logprobs


class Driver:
    """Sequences with ids by order of `requests`; each owns a fixed run of blocks."""

    def __init__(self, worker: Worker, requests: list[Request]) -> None:
        self.worker = worker
        self.requests = requests
        self._steps = 0
        self._blocks_each = min(NUM_BLOCKS // len(requests), 200 // BLOCK_SIZE)

    def run(self, num_tokens: int, chunk: int = 256) -> list[tuple[object, ...]]:
        """Step all requests together until each has num_tokens outputs; prompts go in chunks. Returns their outcomes."""
        while any(len(request.tokens) < num_tokens for request in self.requests):
            ids = [seq_id for seq_id, request in enumerate(self.requests) if len(request.tokens) < num_tokens]
            result = self.step([self.scheduled(seq_id, chunk) for seq_id in ids])
            assert not result.failed, result.failed
        return [request.outcome() for request in self.requests]

    def scheduled(self, seq_id: int, chunk: int = 256) -> ScheduledSequence:
        """The next share of a sequence; new ones bring everything."""
        request = self.requests[seq_id]
        token_ids = request.prompt + request.tokens
        num_new = min(chunk, len(token_ids) - request.num_computed)
        new, blocks = None, []
        if not request.introduced:
            new = NewSequence(
                token_ids, len(request.prompt), request.choice, request.seed, request.sampling, request.stop_token_ids
            )
            blocks = list(range(seq_id * self._blocks_each, (seq_id + 1) * self._blocks_each))[::-1]
            request.introduced = True
        needs_sample = request.num_computed + num_new == len(token_ids)
        share = ScheduledSequence(seq_id, request.num_computed, num_new, blocks, needs_sample, new)
        request.num_computed += num_new
        return share

    def step(self, sequences: list[ScheduledSequence], removed: list[int] | None = None) -> StepResult:
        """Execute one plan and take its results in."""
        self._steps += 1
        result = self.worker.execute(StepPlan(self._steps, sequences, [], removed or []))
        assert result.step_id == self._steps
        for token in result.sampled:
            self._take(token)
        for entries in result.prompt_logprobs:
            for offset, entry in enumerate(entries.entries):
                self.requests[entries.seq_id].prompt_logprobs[entries.first_position + offset] = entry
        return result

    def preempt(self, seq_id: int) -> None:
        """Have the worker forget a sequence; it comes back whole with its next share."""
        self.worker.execute(StepPlan(0, [], [], [seq_id]))
        self.requests[seq_id].introduced = False
        self.requests[seq_id].num_computed = 0

    def _take(self, token: SampledToken) -> None:
        self.requests[token.seq_id].tokens.append(token.token_id)
        self.requests[token.seq_id].logprobs.append(token.logprobs)
