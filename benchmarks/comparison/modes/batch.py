"""Offline batches: octavo's engine in this process against OpenVINO GenAI's pipeline, the same jobs, neither with a server."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from comparison import openvino
from comparison.load import SERVE_METRICS, LoadShape, prepare_jobs
from comparison.octavo_engine import make_engine, run_batch
from comparison.report import Comparison
from comparison.rounds import OURS, Contestant, alternate
from comparison.settings import Settings
from octavo.engine.llm_engine import LLMEngine
from octavo.loadgen.workload import Job

METRICS = SERVE_METRICS[:2]


def compare(settings: Settings, shape: LoadShape, batch_size: int, num_batches: int) -> Comparison:
    """Everybody gets all jobs at once and computes batch_size sequences at a time."""
    batches = [prepare_jobs(settings, shape, batch_size * num_batches, seed=index) for index in range(settings.rounds)]
    engine = make_engine(settings, shape.longest, batch_size)
    try:
        run_batch(engine, ["Hello there, this is a warm-up prompt"], [4])
        contestants = [Contestant(OURS, partial(_our_turn, engine, batches))]
        if settings.openvino_python is not None:
            turn = partial(_openvino_turn, settings, batches, batch_size)
            contestants.append(Contestant(openvino.NAME, turn))
        rounds = alternate(contestants, settings.rounds)
    finally:
        engine.shutdown()
    title = (
        f"offline, {batch_size * num_batches} prompts of {shape.input_len} tokens, {shape.output_len} new each, "
        f"{batch_size} at once"
    )
    return Comparison(title, METRICS, rounds, settings.rounds)


def _our_turn(engine: LLMEngine, batches: Sequence[Sequence[Job]], index: int) -> dict[str, float]:
    jobs = batches[index]
    return dict(run_batch(engine, [job.prompt for job in jobs], [job.output_len for job in jobs]))


def _openvino_turn(settings: Settings, batches: Sequence[Sequence[Job]], batch_size: int, index: int) -> dict[str, float]:
    return openvino.measure_batch(settings, batches[index], batch_size)
