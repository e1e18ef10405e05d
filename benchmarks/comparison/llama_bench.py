"""llama-bench: its command line, and what its JSON says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from comparison.octavo_engine import Shape
from comparison.processes import PeerError, run_tool
from comparison.settings import Settings

NAME = "llama.cpp"


def measure(settings: Settings, shape: Shape) -> dict[str, float]:
    """Tokens per second of prefill and decode, from one repetition each after llama-bench's own warm-up run."""
    assert settings.llama_bench is not None and settings.llama_model is not None
    figures: dict[str, float] = {}
    for arguments in bench_arguments(shape):
        command = [
            str(settings.llama_bench),
            "-m",
            str(settings.llama_model),
            "-t",
            str(settings.threads),
            "-r",
            "1",
            "-o",
            "json",
        ]
        output, _ = run_tool("llama-bench", [*command, *arguments, *settings.llama_args], settings.run_timeout_s)
        figures |= parse(output)
    return figures


def bench_arguments(shape: Shape) -> Iterator[list[str]]:
    """The runs that measure a shape: a depth applies to prompts too, so decoding at a depth is a run of its own."""
    if not shape.depth:
        yield ["-p", str(shape.prefill), "-n", str(shape.decode)]
        return
    if shape.prefill:
        yield ["-p", str(shape.prefill), "-n", "0"]
    if shape.decode:
        yield ["-p", "0", "-n", str(shape.decode), "-d", str(shape.depth)]


def parse(output: str) -> dict[str, float]:
    """Figures from `llama-bench -o json`: a list of tests, each either of a prompt or of generation.

    Raises: PeerError when the text is not that.
    """
    try:
        tests = json.loads(output)
        figures = {}
        for test in tests:
            key = "prefill_tok_s" if test["n_prompt"] else "decode_tok_s"
            figures[key] = float(test["avg_ts"])
    except (ValueError, KeyError, TypeError) as error:
        raise PeerError(f"llama-bench printed something else than a list of tests ({error!r}): {output[:200]!r}") from None
    if not figures:
        raise PeerError("llama-bench ran no test")
    return figures


def version(path: Path) -> str:
    """The line that llama.cpp's tools print with --version."""
    out, err = run_tool(path.name, [str(path), "--version"], 30.0)
    lines = [line for line in (out + err).splitlines() if line.startswith("version")]
    return lines[0].partition(":")[2].strip() if lines else "unknown"
