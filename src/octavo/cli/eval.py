"""octavo eval: the group of accuracy measurements."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from octavo.cli.bench_options import output_json_option, write_json
from octavo.cli.engine_options import engine_config, engine_options, model_argument
from octavo.cli.help import CONTEXT_SETTINGS, SectionedCommand
from octavo.cli.lazy_progress import lazy_pull_progress
from octavo.config.engine import EngineConfig
from octavo.config.resolve import check_options
from octavo.engine.frontend.served_model import locate_model
from octavo.errors import ConfigError
from octavo.loader.checkpoint import open_checkpoint
from octavo.models.registry import declare
from octavo.quantize.evaluate import Divergence, Perplexity, compare, perplexity
from octavo.quantize.logits import LogitsRunner
from octavo.quantize.windows import Window, cut_windows
from octavo.text.load import load_tokenizer
from octavo.text.tokenizer import Tokenizer

EXAMPLES = """
octavo eval perplexity --file book.txt                              the embedded model as it is served
octavo eval perplexity --file book.txt --compare-dtype float32      and how far it strays from float32 arithmetic
octavo eval perplexity ./Qwen3-0.6B --quantization int4 --compare-dtype float32 --file a.txt --file b.txt
"""


@click.group(name="eval", context_settings=CONTEXT_SETTINGS)
def evaluate() -> None:
    """Measure accuracy."""


@evaluate.command(name="perplexity", cls=SectionedCommand, context_settings=CONTEXT_SETTINGS, examples=EXAMPLES)
@click.option("--file", "files", metavar="TEXT", multiple=True, required=True, help="UTF-8 text to score; may be repeated.")
@click.option(
    "--context", type=click.IntRange(2, 2**24), default=1024, show_default=True, metavar="N", help="Tokens of one window."
)
@click.option(
    "--stride", type=click.IntRange(1, 2**24), metavar="N", help="Tokens from window to window. Default: half of --context."
)
@click.option("--max-tokens", type=click.IntRange(2), metavar="N", help="Score the first N tokens of each text only.")
@click.option(
    "--compare-dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    help="Compute every token a second time from the same stored weights, widened or rounded to this type and not quantised; "
    "report the ratio of perplexities, the share of equal top tokens, and the mean KL divergence.",
)
@output_json_option
@model_argument
@engine_options
def perplexity_command(
    model_argument: str | None,
    files: tuple[str, ...],
    context: int,
    stride: int | None,
    max_tokens: int | None,
    compare_dtype: str | None,
    output_json: str | None,
    **values: Any,
) -> None:
    """Perplexity of MODEL on texts, computed exactly as it is served: same weights, same kernels.

    Windows of --context tokens overlap by --context minus --stride; each token counts once. One window is computed at a time,
    in steps of --chunked-prefill-size tokens.
    """
    config = engine_config(model_argument, values)
    check_options(config)
    with lazy_pull_progress() as progress:
        config = locate_model(config, progress)
    checkpoint = open_checkpoint(Path(config.loading.model), declare, config.loading.load_format)
    context = _checked_context(context, config, checkpoint.config.max_position)
    windows = _windows(load_tokenizer(checkpoint.path, checkpoint.gguf), files, context, stride, max_tokens)
    context = max(len(window.token_ids) for window in windows)
    runner = LogitsRunner(config, checkpoint, context)
    reference = None
    if compare_dtype is not None:
        loading = replace(config.loading, dtype=compare_dtype, quantization="none")
        reference = LogitsRunner(replace(config, loading=loading), checkpoint, context)
    result, divergence = _run(runner, reference, windows)
    _print(result, divergence, compare_dtype)
    write_json(output_json, _figures(result, divergence, compare_dtype, config))


def _checked_context(context: int, config: EngineConfig, max_position: int) -> int:
    limit, origin = max_position, "the model's context"
    if config.scheduler.max_model_len is not None:
        limit, origin = config.scheduler.max_model_len, "--max-model-len"
    if context > limit:
        raise ConfigError(f"--context {context} is more than {origin} of {limit} tokens; use {limit} or less", param="context")
    return context


def _windows(
    tokenizer: Tokenizer, files: tuple[str, ...], context: int, stride: int | None, max_tokens: int | None
) -> list[Window]:
    """The windows of all files, which never share one."""
    prefix = [tokenizer.bos_token_id] if tokenizer.adds_bos and tokenizer.bos_token_id is not None else []
    stride = stride or max(1, context // 2)
    if stride >= context:
        raise ConfigError(
            f"--stride {stride} would pass over tokens; with --context {context} use {context - 1} or less", param="stride"
        )
    windows: list[Window] = []
    for file in files:
        token_ids = tokenizer.encode(_read_text(file), add_special_tokens=False, parse_special=False)
        cut = cut_windows(token_ids[:max_tokens], context, stride, prefix)
        if not cut:
            raise ConfigError(f"--file {file} has no token to score; give a longer text", param="file")
        windows += cut
    return windows


def _read_text(file: str) -> str:
    try:
        return Path(os.path.expanduser(file)).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a UTF-8 text"
        raise ConfigError(f"--file {file} cannot be read: {reason}", param="file") from None


def _run(runner: LogitsRunner, reference: LogitsRunner | None, windows: list[Window]) -> tuple[Perplexity, Divergence | None]:
    """Score with a live bar on stderr."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("tokens"), TimeElapsedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("perplexity", total=sum(window.num_scored for window in windows))

        def report(num_scored: int, value: float) -> None:
            bar.update(task, completed=num_scored, description=f"perplexity {value:.3f}")

        if reference is None:
            return perplexity(runner, windows, report), None
        return compare(runner, reference, windows, report)


def _print(result: Perplexity, divergence: Divergence | None, compare_dtype: str | None) -> None:
    rate = result.num_tokens / result.seconds
    print(f"perplexity        {result.value:.4f} +- {result.standard_error:.4f}")
    if divergence is not None:
        print(f"{compare_dtype:<17} {divergence.reference_value:.4f}")
        print(f"ratio             {divergence.ratio:.5f} +- {divergence.ratio_error:.5f}")
        print(f"equal top tokens  {100 * divergence.equal_top:.2f}%")
        print(f"mean KL           {divergence.mean_kl:.6f} nats")
    print(f"scored            {result.num_tokens} tokens in {result.seconds:.1f} s, {rate:.0f} tokens/s")


def _figures(
    result: Perplexity, divergence: Divergence | None, compare_dtype: str | None, config: EngineConfig
) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "model": config.loading.model,
        "dtype": config.loading.dtype,
        "quantization": config.loading.quantization,
        "perplexity": result.value,
        "perplexity_standard_error": result.standard_error,
        "num_tokens": result.num_tokens,
        "elapsed_time": result.seconds,
    }
    if divergence is not None:
        figures["comparison"] = {
            "dtype": compare_dtype,
            "perplexity": divergence.reference_value,
            "ratio": divergence.ratio,
            "ratio_standard_error": divergence.ratio_error,
            "equal_top_tokens": divergence.equal_top,
            "mean_kl": divergence.mean_kl,
        }
    return figures
