"""octavo bench kernels: what one step costs at several batch sizes, and how near its products come to the machine's limits."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from octavo.cli.bench_options import engine_limits, output_json_option, write_json
from octavo.cli.engine_options import engine_config, engine_options, model_argument
from octavo.cli.help import CONTEXT_SETTINGS, SectionedCommand
from octavo.cli.lazy_progress import lazy_pull_progress
from octavo.engine.llm_engine import LLMEngine
from octavo.ops.cpu.limits import Limits
from octavo.ops.interface import Program, StepInputs
from octavo.ops.phase_cost import PhaseCost

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

EXAMPLES = """
octavo bench kernels                              the embedded model, 1 to 256 rows
octavo bench kernels model.gguf --rows 1 --rows 64 --isa avx2
"""


@dataclass(frozen=True, slots=True)
class StepFigure:
    """One batch size. Rates are those of the matrix products alone; shares are of the limits measured in the same run."""

    kind: str
    rows: int
    step_s: float
    macs_per_s: float
    bytes_per_s: float
    share_of_arithmetic: float
    share_of_memory: float


@click.command(cls=SectionedCommand, context_settings=CONTEXT_SETTINGS, examples=EXAMPLES)
@click.option("--rows", type=click.IntRange(1, 65536), multiple=True, metavar="N", help="Batch size; may be repeated.")
@click.option("--num-iters", type=click.IntRange(1), default=7, show_default=True, metavar="N", help="Steps per batch size.")
@output_json_option
@model_argument
@engine_options
def kernels(model_argument: str | None, rows: tuple[int, ...], num_iters: int, output_json: str | None, **values: Any) -> None:
    """Time single steps of the model: decodes of N sequences and prefill chunks of N tokens.

    Shares tell how far the products are from what the machine can do: thin batches wait for memory, wide ones for arithmetic.
    """
    counts = rows or ROWS
    # A step must hold the largest batch asked for, whatever the serving default is.
    values["max_num_batched_tokens"] = max(values.get("max_num_batched_tokens") or 0, *counts)
    with lazy_pull_progress() as progress:
        engine = LLMEngine(engine_config(model_argument, values), report=progress)
    config = engine.resolved_config
    limits = engine_limits(engine)
    figures = []
    jobs = [("decode", count) for count in counts if count <= config.scheduler.max_num_seqs]
    jobs += [("prefill", count) for count in counts if rows or count > 16]
    for kind, count in track(jobs, description="steps", transient=True):
        inputs = decode_step(count) if kind == "decode" else prefill_step(count, config.cache.block_size)
        figures.append(measure(engine.program, kind, inputs, num_iters, limits))
    engine.shutdown()
    print_figures(figures, limits)
    write_json(output_json, {"limits": asdict(limits), "steps": [asdict(figure) for figure in figures]})


def decode_step(num_seqs: int) -> StepInputs:
    """num_seqs sequences of one token each, each in a block of its own."""
    index = np.arange(num_seqs, dtype=np.int32)
    return StepInputs(
        token_ids=index + 1,
        positions=np.zeros(num_seqs, np.int32),
        slot_mapping=np.zeros(num_seqs, np.int32),
        query_start=np.arange(num_seqs + 1, dtype=np.int32),
        first_position=np.zeros(num_seqs, np.int32),
        block_tables=np.zeros((num_seqs, 1), np.int32),
        logit_rows=index,
    )


def prefill_step(num_tokens: int, block_size: int) -> StepInputs:
    """The first num_tokens tokens of one prompt; the last one's logits are wanted."""
    index = np.arange(num_tokens, dtype=np.int32)
    num_blocks = -(-num_tokens // block_size)
    return StepInputs(
        token_ids=index % 1000 + 1,
        positions=index,
        slot_mapping=index,
        query_start=np.array([0, num_tokens], np.int32),
        first_position=np.zeros(1, np.int32),
        block_tables=np.arange(num_blocks, dtype=np.int32).reshape(1, num_blocks),
        logit_rows=index[-1:],
    )


def measure(program: Program[object], kind: str, inputs: StepInputs, num_iters: int, limits: Limits) -> StepFigure:
    """Medians of num_iters steps after one that does not count."""
    program.run(inputs)
    seconds = []
    for _ in range(num_iters):
        start_s = time.perf_counter()
        program.run(inputs)
        seconds.append(time.perf_counter() - start_s)
    program.start_profile()
    program.run(inputs)
    products = [cost for cost in program.profile() if cost.label.startswith("gemm")]
    busy_s = sum(cost.seconds for cost in products)
    # The time the products would take if each ran at the limit that holds for its kind of numbers.
    ideal_s = sum(cost.macs / limits.macs_per_s(cost.label) for cost in products)
    return StepFigure(
        kind=kind,
        rows=len(inputs.token_ids),
        step_s=statistics.median(seconds),
        macs_per_s=_total(products, "macs") / busy_s,
        bytes_per_s=_total(products, "bytes") / busy_s,
        share_of_arithmetic=ideal_s / busy_s,
        share_of_memory=_total(products, "bytes") / busy_s / limits.read_bytes_per_s,
    )


def _total(costs: Sequence[PhaseCost], field: str) -> float:
    return float(sum(getattr(cost, field) for cost in costs))


def print_figures(figures: Sequence[StepFigure], limits: Limits) -> None:
    table = Table(title="One step, and its matrix products", title_justify="left")
    table.add_column("step")
    for name in ("rows", "ms", "tokens/s", "GMAC/s", "of arithmetic", "GB/s", "of memory"):
        table.add_column(name, justify="right")
    for figure in figures:
        table.add_row(
            figure.kind,
            str(figure.rows),
            f"{1e3 * figure.step_s:.2f}",
            f"{figure.rows / figure.step_s:.0f}",
            f"{figure.macs_per_s / 1e9:.1f}",
            f"{figure.share_of_arithmetic:.0%}",
            f"{figure.bytes_per_s / 1e9:.1f}",
            f"{figure.share_of_memory:.0%}",
        )
    Console().print(table)
    print(
        f"Limits measured now: {limits.read_bytes_per_s / 1e9:.1f} GB/s read, {limits.fma_macs_per_s / 1e9:.0f} float and "
        f"{limits.int8_macs_per_s / 1e9:.0f} int8 GMAC/s on {limits.num_threads} threads ({limits.isa})"
    )
