"""octavo in this process, measured through its engine: prefill, decode at a depth, and an offline batch."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comparison.processes import PeerError
from comparison.settings import Settings
from octavo.engine.args import EngineArgs
from octavo.engine.frontend.outputs import RequestOutput
from octavo.engine.llm_engine import LLMEngine
from octavo.loader.checkpoint import open_checkpoint
from octavo.models.registry import declare
from octavo.sampling_params import RequestOutputKind, SamplingParams

BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """As llama-bench's -p, -n and -d: prompt tokens, generated tokens, context before the generated ones."""

    prefill: int
    decode: int
    depth: int = 0

    @property
    def longest(self) -> int:
        return max(self.prefill + 1, self.depth + self.decode + 2)


@dataclass(frozen=True, slots=True)
class Work:
    """What one token costs, from the checkpoint's header.

    macs_per_token    multiply-adds in the matrices of all layers, without the output head and attention
    bytes_per_token   stored bytes of those matrices and of the output head: what a decode step of batch 1 reads
    """

    macs_per_token: int
    bytes_per_token: int


def work_of(model: Path) -> Work:
    checkpoint = open_checkpoint(model, declare)
    matrices = [parameter for parameter in checkpoint.parameters if len(parameter.shape) == 2]
    inner = [parameter for parameter in matrices if parameter.role not in ("embedding", "head")]
    head = next((parameter for parameter in matrices if parameter.role == "head"), None)
    if head is None:
        head = next(parameter for parameter in matrices if parameter.role == "embedding")
    macs = sum(parameter.shape[0] * parameter.shape[1] for parameter in inner)
    return Work(macs, sum(checkpoint.tensors[parameter.name].nbytes for parameter in (*inner, head)))


def make_engine(settings: Settings, longest: int, num_seqs: int = 1) -> LLMEngine:
    """An engine with room for num_seqs sequences of `longest` tokens; the prefix cache is off, as it is for the peers."""
    options: dict[str, Any] = {
        "model": str(settings.model),
        "num_threads": settings.threads,
        "enable_prefix_caching": False,
        "max_num_seqs": num_seqs,
        "max_model_len": longest,
        "block_size": BLOCK_SIZE,
        "num_gpu_blocks_override": num_seqs * -(-longest // BLOCK_SIZE) + 2,
    }
    return LLMEngine(EngineArgs(**(options | settings.octavo_args)).create_engine_config())


class EngineUnderTest:
    """Times single sequences of random tokens, as llama-bench does. `close` frees the model."""

    def __init__(self, settings: Settings, shape: Shape) -> None:
        self._engine = make_engine(settings, shape.longest)
        self._shape = shape
        self._work = work_of(settings.model)
        self._rng = random.Random(0)
        self._num_requests = 0
        self._timed(max(shape.prefill, 1), 1)  # llama-bench warms up with the whole prompt too

    def measure(self) -> dict[str, float]:
        """Tokens per second of prefill and decode, and the multiply-adds and stored bytes per second that follow from them."""
        figures = {}
        if self._shape.prefill:
            seconds, _ = self._timed(self._shape.prefill, 1)
            figures["prefill_tok_s"] = self._shape.prefill / seconds
            figures["prefill_gmac_s"] = figures["prefill_tok_s"] * self._work.macs_per_token / 1e9
        if self._shape.decode:
            _, seconds = self._timed(self._shape.depth + 1, self._shape.decode + 1)
            figures["decode_tok_s"] = self._shape.decode / seconds
            figures["decode_gb_s"] = figures["decode_tok_s"] * self._work.bytes_per_token / 1e9
        return figures

    def close(self) -> None:
        self._engine.shutdown()

    def _timed(self, prompt_len: int, output_len: int) -> tuple[float, float]:
        """(seconds to the first token, seconds from there to the last). Raises PeerError if the request does not succeed."""
        vocabulary = self._engine.model_config.vocab_size
        prompt = [self._rng.randrange(vocabulary) for _ in range(prompt_len)]
        self._num_requests += 1
        params = SamplingParams(temperature=0.0, max_tokens=output_len, ignore_eos=True)
        start_s = time.perf_counter()
        self._engine.add_request(str(self._num_requests), prompt, params, output_kind=RequestOutputKind.DELTA)
        first_s, num_output = 0.0, 0
        while self._engine.has_unfinished_requests():
            num_output += count_tokens(self._engine.step())
            if num_output and not first_s:
                first_s = time.perf_counter()
        end_s = time.perf_counter()
        if num_output != output_len:
            raise PeerError(f"octavo gave {num_output} tokens instead of {output_len}")
        return first_s - start_s, end_s - first_s


def count_tokens(outputs: Sequence[RequestOutput]) -> int:
    """New tokens of a step's outputs. Raises PeerError if a request failed: an error is quick, but no result."""
    choices = [choice for output in outputs for choice in output.outputs]
    for choice in choices:
        if choice.finish_reason not in (None, "length"):
            raise PeerError(f"an octavo request ended with {choice.finish_reason!r}")
    return sum(len(choice.token_ids) for choice in choices)


def run_batch(engine: LLMEngine, prompts: Sequence[str], output_lens: Sequence[int]) -> Mapping[str, float]:
    """Complete all prompts, greedy, as fast as the engine can. Returns tokens per second. Raises PeerError if one fails."""
    num_input = num_output = 0
    start_s = time.perf_counter()
    for index, (prompt, output_len) in enumerate(zip(prompts, output_lens, strict=True)):
        params = SamplingParams(temperature=0.0, max_tokens=output_len, ignore_eos=True)
        engine.add_request(f"{start_s}-{index}", prompt, params, output_kind=RequestOutputKind.FINAL_ONLY)
    while engine.has_unfinished_requests():
        outputs = engine.step()
        num_input += sum(len(output.prompt_token_ids) for output in outputs)
        num_output += count_tokens(outputs)
    seconds = time.perf_counter() - start_s
    return {"total_tok_s": (num_input + num_output) / seconds, "output_tok_s": num_output / seconds}
