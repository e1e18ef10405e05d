"""octavo bench throughput: tokens per second over many prompts, offline."""

from __future__ import annotations

import time
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

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
from octavo.loadgen.workload import WorkloadSpec
from octavo.sampling_params import RequestOutputKind, SamplingParams

EXAMPLES = """
octavo bench throughput --num-prompts 64 --input-len 256 --output-len 64
octavo bench throughput model.gguf --max-num-seqs 128 --output-json throughput.json
"""


@click.command(cls=SectionedCommand, context_settings=CONTEXT_SETTINGS, examples=EXAMPLES)
@click.option("--num-prompts", type=LENGTH, default=64, show_default=True, metavar="N", help="Prompts in all.")
@click.option("--input-len", type=LENGTH, default=256, show_default=True, metavar="N", help="Tokens per prompt.")
@click.option("--output-len", type=LENGTH, default=64, show_default=True, metavar="N", help="Tokens per completion.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Chooses the prompts.")
@click.option("--text-file", metavar="FILE", help="Take the prompts from this text instead of made-up English.")
@profile_option
@output_json_option
@model_argument
@engine_options
def throughput(
    model_argument: str | None,
    num_prompts: int,
    input_len: int,
    output_len: int,
    seed: int,
    text_file: str | None,
    profile: bool,
    output_json: str | None,
    **values: Any,
) -> None:
    """Complete many prompts as fast as the engine can, greedy, and print requests and tokens per second."""
    with lazy_pull_progress() as progress:
        engine = LLMEngine(engine_config(model_argument, values), report=progress)
    spec = WorkloadSpec(num_prompts=num_prompts, input_len=input_len, output_len=output_len, seed=seed, text_file=text_file)
    prompts = local_prompts(spec, engine.tokenizer)
    params = SamplingParams(temperature=0.0, max_tokens=output_len, ignore_eos=True)
    if profile:
        engine.program.start_profile()
    before = draft_counts(engine)
    elapsed_s, num_output = run_all(engine, prompts, params)
    costs = engine.program.profile() if profile else []
    num_input = sum(map(len, prompts))
    figures: dict[str, Any] = {
        "elapsed_time": elapsed_s,
        "num_requests": num_prompts,
        "total_num_tokens": num_input + num_output,
        "requests_per_second": num_prompts / elapsed_s,
        "tokens_per_second": (num_input + num_output) / elapsed_s,
        "output_tokens_per_second": num_output / elapsed_s,
    }
    print(
        f"Throughput: {figures['requests_per_second']:.2f} requests/s, {figures['tokens_per_second']:.2f} total tokens/s, "
        f"{figures['output_tokens_per_second']:.2f} output tokens/s"
    )
    print(f"Total num prompt tokens:  {num_input}\nTotal num output tokens:  {num_output}")
    figures |= print_drafts(engine, before)
    engine.shutdown()
    if profile:
        figures["profile"] = print_profile(costs, engine_limits(engine), elapsed_s)
    write_json(output_json, figures)


def run_all(engine: LLMEngine, prompts: list[list[int]], params: SamplingParams) -> tuple[float, int]:
    """(seconds, output tokens) of completing all prompts, with a live bar on stderr."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    num_output = 0
    start_s = time.perf_counter()
    for index, token_ids in enumerate(prompts):
        engine.add_request(str(index), token_ids, params, output_kind=RequestOutputKind.DELTA)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("prompts", total=len(prompts))
        while engine.has_unfinished_requests():
            outputs = engine.step()
            num_output += sum(len(choice.token_ids) for output in outputs for choice in output.outputs)
            num_finished = sum(output.finished for output in outputs)
            if num_finished:
                rate = num_output / (time.perf_counter() - start_s)
                bar.update(task, advance=num_finished, description=f"prompts  {num_output} tokens, {rate:.0f} tokens/s")
    return time.perf_counter() - start_s, num_output
