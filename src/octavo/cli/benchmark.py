"""octavo benchmark: where the time of an offline batch goes, phase by phase, with advice in words."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from octavo.cli.bench_options import LENGTH, engine_limits, local_prompts, output_json_option, profile_option, write_json
from octavo.cli.engine_options import engine_config, engine_options, model_argument
from octavo.cli.help import CONTEXT_SETTINGS, SectionedCommand
from octavo.cli.lazy_progress import lazy_pull_progress
from octavo.cli.profile_table import print_profile
from octavo.engine.llm_engine import LLMEngine
from octavo.errors import ConfigError
from octavo.loadgen.workload import WorkloadSpec
from octavo.ops.phase_cost import PhaseCost
from octavo.sampling_params import RequestOutputKind, SamplingParams

PREPROCESSING, EXECUTION, POSTPROCESSING = "Preprocessing", "Model Execution", "Postprocessing"
MUCH = 0.1
"""Share of the time from which a phase beside the model is worth a word."""
SMALL_BATCH = 8

EXAMPLES = """
octavo benchmark --model model.gguf --profile
octavo benchmark --profile --verbose --batch-size 16 --trace trace.json      open it in chrome://tracing or ui.perfetto.dev
"""


@dataclass(frozen=True, slots=True)
class Span:
    """One piece of work of a phase. num_tokens: those that a step computed; 0 elsewhere."""

    phase: str
    start_s: float
    seconds: float
    num_tokens: int = 0


@click.command(cls=SectionedCommand, context_settings=CONTEXT_SETTINGS, examples=EXAMPLES)
@click.option("--input-len", type=LENGTH, default=128, show_default=True, metavar="N", help="Tokens per prompt.")
@click.option("--output-len", type=LENGTH, default=64, show_default=True, metavar="N", help="Tokens per completion.")
@click.option("--batch-size", type=click.IntRange(1, 4096), default=8, show_default=True, metavar="N", help="Prompts at once.")
@profile_option
@click.option("--verbose", is_flag=True, help="With --profile: each op of the model, too.")
@click.option("--trace", metavar="FILE", help="Write all pieces of work to FILE, as Chrome's trace viewer reads them.")
@output_json_option
@model_argument
@engine_options
def benchmark(
    model_argument: str | None,
    input_len: int,
    output_len: int,
    batch_size: int,
    profile: bool,
    verbose: bool,
    trace: str | None,
    output_json: str | None,
    **values: Any,
) -> None:
    """Run one batch offline, after another one to warm up, and print tokens per second; with --profile where the time went.

    Preprocessing is checking and tokenising, Model Execution is scheduling, forward pass and sampling, Postprocessing is text
    and delivery.
    """
    with lazy_pull_progress() as progress:
        engine = LLMEngine(engine_config(model_argument, values), report=progress)
    spec = WorkloadSpec(num_prompts=2 * batch_size, input_len=input_len, output_len=output_len)
    texts = [engine.tokenizer.decode(ids, skip_special_tokens=False) for ids in local_prompts(spec, engine.tokenizer)]
    params = SamplingParams(temperature=0.0, max_tokens=output_len, ignore_eos=True)
    run_spans(engine, texts[:batch_size], params)
    engine.program.start_profile()
    spans = run_spans(engine, texts[batch_size:], params)
    costs = engine.program.profile()
    limits = engine_limits(engine) if profile and verbose else None
    engine.shutdown()
    total_s = sum(span.seconds for span in spans)
    num_generated = batch_size * output_len
    print(f"{num_generated} tokens for {batch_size} prompts in {total_s:.3f} s: {num_generated / total_s:.1f} tokens/s")
    figures: dict[str, Any] = {"seconds": total_s, "tokens_per_s": num_generated / total_s, "phases": phase_seconds(spans)}
    if profile:
        for line in phase_table(spans):
            print(line)
        if limits is not None:
            figures["profile"] = print_profile(costs, limits, total_s)
        for line in advice(spans, costs, batch_size):
            print(f"advice: {line}")
    if trace is not None:
        write_trace(trace, spans)
    write_json(output_json, figures)


def run_spans(engine: LLMEngine, texts: Sequence[str], params: SamplingParams) -> list[Span]:
    """Run the prompts together, and note what is done when."""
    spans = []
    for index, text in enumerate(texts):
        start_s = time.perf_counter()
        engine.add_request(str(index), text, params, output_kind=RequestOutputKind.FINAL_ONLY)
        spans.append(Span(PREPROCESSING, start_s, time.perf_counter() - start_s))
    while engine.has_unfinished_requests():
        before = engine.stats()
        start_s = time.perf_counter()
        engine.step()
        elapsed_s, after = time.perf_counter() - start_s, engine.stats()
        busy_s = min(elapsed_s, after.busy_s - before.busy_s)
        spans.append(Span(EXECUTION, start_s, busy_s, after.num_step_tokens - before.num_step_tokens))
        spans.append(Span(POSTPROCESSING, start_s + busy_s, elapsed_s - busy_s))
    return spans


def phase_seconds(spans: Sequence[Span]) -> dict[str, float]:
    """Phase -> seconds."""
    return {
        phase: sum(span.seconds for span in spans if span.phase == phase)
        for phase in (PREPROCESSING, EXECUTION, POSTPROCESSING)
    }


def phase_table(spans: Sequence[Span]) -> list[str]:
    """A head and one line per phase: seconds, and percent of the whole."""
    seconds = phase_seconds(spans)
    total_s = sum(seconds.values()) or 1.0
    rows = [f"{phase:<17}{value:>10.4f}{value / total_s:>10.1%}" for phase, value in seconds.items()]
    return [f"{'phase':<17}{'seconds':>10}{'percent':>10}", *rows]


def advice(spans: Sequence[Span], costs: Sequence[PhaseCost], batch_size: int) -> list[str]:
    """What these figures suggest; at least one sentence."""
    seconds = phase_seconds(spans)
    total_s = sum(seconds.values()) or 1.0
    found = []
    if seconds[PREPROCESSING] > MUCH * total_s:
        found.append(
            "tokenising is a large part of the time: send token ids, or share prompts, which the prefix cache then finds"
        )
    if seconds[POSTPROCESSING] > MUCH * total_s:
        found.append("text and delivery are a large part of the time: ask for fewer logprobs, or deliver at the end only")
    if batch_size < SMALL_BATCH:
        found.append(f"{batch_size} prompts at once leave the machine idle between weights: more share one reading of them")
    attention_s = sum(cost.seconds for cost in costs if "attention" in cost.label)
    tape_s = sum(cost.seconds for cost in costs) or 1.0
    if attention_s > 0.3 * tape_s:
        found.append(f"attention takes {attention_s / tape_s:.0%} of the forward pass: contexts are long; shorten the prompts")
    if costs:
        dearest = max(costs, key=lambda cost: cost.seconds)
        share = dearest.seconds / tape_s
        found.append(
            f"the dearest op is {dearest.label} ({share:.0%} of the forward pass); a smaller storage type (--quantization) "
            "reads fewer bytes for it"
        )
    return found or ["nothing stands out"]


def write_trace(path: str, spans: Sequence[Span]) -> None:
    """Chrome's trace events, in microseconds. Raises ConfigError when the file cannot be written."""
    first_s = min((span.start_s for span in spans), default=0.0)
    phases = (PREPROCESSING, EXECUTION, POSTPROCESSING)
    names = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": phase}} for tid, phase in enumerate(phases)
    ]
    pieces = [
        {
            "ph": "X",
            "name": span.phase,
            "pid": 1,
            "tid": phases.index(span.phase),
            "ts": (span.start_s - first_s) * 1e6,
            "dur": span.seconds * 1e6,
            "args": {"num_tokens": span.num_tokens},
        }
        for span in spans
    ]
    try:
        Path(path).write_text(json.dumps({"traceEvents": names + pieces}))
    except OSError as error:
        raise ConfigError(f"--trace {path}: {error.strerror}", param="trace") from None
