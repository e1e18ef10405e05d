"""What a decode step of the whole engine costs outside the forward pass: scheduling, batch preparation, sampling, text.

Everything runs in one process here; the wire between engine and server is in engine/step_overhead.py.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from comparison.octavo_engine import count_tokens, make_engine
from comparison.processes import PeerError
from comparison.settings import Settings
from octavo.engine.llm_engine import LLMEngine
from octavo.ops.arrays import F32
from octavo.ops.interface import Program, StepInputs
from octavo.sampling_params import RequestOutputKind, SamplingParams

PROMPT_LEN = 32


class TimedProgram:
    """A program that remembers how long its last run took."""

    def __init__(self, program: Program[F32]) -> None:
        self._program = program
        self.seconds = 0.0

    def run(self, inputs: StepInputs) -> F32:
        start_s = time.perf_counter()
        logits = self._program.run(inputs)
        self.seconds = time.perf_counter() - start_s
        return logits


def measure(settings: Settings, num_seqs: int, num_steps: int) -> dict[str, float]:
    """Medians over decode steps of num_seqs greedy sequences, and the share of a step outside the forward pass."""
    engine = make_engine(settings, PROMPT_LEN + num_steps + 16, num_seqs)
    try:
        return _measure(engine, num_seqs, num_steps)
    finally:
        engine.shutdown()


def _measure(engine: LLMEngine, num_seqs: int, num_steps: int) -> dict[str, float]:
    # A step has no public seam around the forward pass, and should not get one for a benchmark.
    runner: Any = engine._core._worker._runner  # type: ignore[attr-defined]
    timed = runner._program = TimedProgram(runner._program)
    params = SamplingParams(temperature=0.0, max_tokens=num_steps + 8, ignore_eos=True)
    for index in range(num_seqs):
        prompt = [(index * PROMPT_LEN + position) % 1000 + 100 for position in range(PROMPT_LEN)]
        engine.add_request(str(index), prompt, params, output_kind=RequestOutputKind.DELTA)
    while count_tokens(engine.step()) < num_seqs:
        if not engine.has_unfinished_requests():
            raise PeerError(f"octavo never decoded {num_seqs} sequences in one step")
    whole, program = [], []
    for _ in range(num_steps):
        start_s = time.perf_counter()
        num_tokens = count_tokens(engine.step())
        if num_tokens < num_seqs:
            break  # the sequences that began first have ended
        whole.append(time.perf_counter() - start_s)
        program.append(timed.seconds)
    outside = [total - inside for total, inside in zip(whole, program, strict=True)]
    shares = [part / total for part, total in zip(outside, whole, strict=True)]
    return {
        "num_seqs": num_seqs,
        "steps": len(whole),
        "step_us": statistics.median(whole) * 1e6,
        "program_us": statistics.median(program) * 1e6,
        "outside_us": statistics.median(outside) * 1e6,
        "outside_share": statistics.median(shares),
    }
