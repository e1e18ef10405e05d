"""octavo bench latency: how long one batch takes."""

from __future__ import annotations

import statistics
import time
from typing import Any

import click
from rich.progress import track

from octavo.cli.bench_options import (
    LENGTH,
    draft_counts,
    engine_limits,
    local_prompts,
    output_json_option,
    print_drafts,
    profile_option,
    write_json,
)
from octavo.cli.engine_options import engine_config, engine_options, model_argument
from octavo.cli.help import CONTEXT_SETTINGS, SectionedCommand
from octavo.cli.lazy_progress import lazy_pull_progress
from octavo.cli.profile_table import print_profile
from octavo.engine.llm_engine import LLMEngine
from octavo.loadgen.report import percentile
from octavo.loadgen.workload import WorkloadSpec
from octavo.sampling_params import RequestOutputKind, SamplingParams

PERCENTILES = (10, 25, 50, 75, 90, 99)

EXAMPLES = """
octavo bench latency --batch-size 8 --input-len 32 --output-len 128
octavo bench latency model.gguf --num-iters 30 --output-json latency.json
"""


@click.command(cls=SectionedCommand, context_settings=CONTEXT_SETTINGS, examples=EXAMPLES)
@click.option("--input-len", type=LENGTH, default=32, show_default=True, metavar="N", help="Tokens per prompt.")
@click.option("--output-len", type=LENGTH, default=128, show_default=True, metavar="N", help="Tokens per completion.")
@click.option("--batch-size", type=click.IntRange(1, 4096), default=8, show_default=True, metavar="N", help="Prompts at once.")
@click.option(
    "--num-iters-warmup", type=click.IntRange(0), default=3, show_default=True, metavar="N", help="Runs before the clock."
)
@click.option("--num-iters", type=click.IntRange(1), default=10, show_default=True, metavar="N", help="Runs that count.")
@profile_option
@output_json_option
@model_argument
@engine_options
def latency(
    model_argument: str | None,
    input_len: int,
    output_len: int,
    batch_size: int,
    num_iters_warmup: int,
    num_iters: int,
    profile: bool,
    output_json: str | None,
    **values: Any,
) -> None:
    """Time a batch from its start to its last token, greedy, and print mean and percentiles.

    Every run has fresh prompts, so that the prefix cache cannot help.
    """
    with lazy_pull_progress() as progress:
        engine = LLMEngine(engine_config(model_argument, values), report=progress)
    num_runs = num_iters_warmup + num_iters
    prompts = local_prompts(
        WorkloadSpec(num_prompts=num_runs * batch_size, input_len=input_len, output_len=output_len), engine.tokenizer
    )
    params = SamplingParams(temperature=0.0, max_tokens=output_len, ignore_eos=True)
    seconds = []
    before = draft_counts(engine)
    for run in track(range(num_runs), description="runs", transient=True):
        if run == num_iters_warmup:
            before = draft_counts(engine)
            if profile:
                engine.program.start_profile()
        elapsed_s = run_batch(engine, prompts[run * batch_size : (run + 1) * batch_size], params)
        if run >= num_iters_warmup:
            seconds.append(elapsed_s)
    costs = engine.program.profile() if profile else []
    figures: dict[str, Any] = {
        "avg_latency": statistics.fmean(seconds),
        "latencies": seconds,
        "percentiles": {str(percent): percentile(seconds, percent) for percent in PERCENTILES},
    }
    print(f"Avg latency: {figures['avg_latency']:.4f} seconds")
    for percent in PERCENTILES:
        print(f"{percent}% percentile latency: {percentile(seconds, percent):.4f} seconds")
    figures |= print_drafts(engine, before)
    engine.shutdown()
    if profile:
        figures["profile"] = print_profile(costs, engine_limits(engine), sum(seconds))
    write_json(output_json, figures)


def run_batch(engine: LLMEngine, prompts: list[list[int]], params: SamplingParams) -> float:
    """Seconds to complete all prompts together."""
    start_s = time.perf_counter()
    for index, token_ids in enumerate(prompts):
        engine.add_request(str(index), token_ids, params, output_kind=RequestOutputKind.FINAL_ONLY)
    while engine.has_unfinished_requests():
        engine.step()
    return time.perf_counter() - start_s
