"""make bench: octavo's own figures on this machine, one JSON file each in benchmarks/figures/.

python benchmarks/run.py                       everything, some minutes
python benchmarks/run.py --only engine serve   some of it
python benchmarks/run.py --quick --out DIR     a smoke run: every part, figures of little worth

engine         prefill and decode of one sequence        serve      closed loop at 1 and 16 requests at once
long           a prompt of 4096 tokens, decode at 8000   startup    command to first token, memory
linear         products by format, rows and ISA          attention  decode and prefill by KV type and ISA
step_overhead  a step outside the worker, by part        step_share a step outside the forward pass
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comparison import step_share
from comparison.facts import gather, this_command
from comparison.load import LoadShape
from comparison.modes import engine, serve, startup
from comparison.octavo_engine import Shape
from comparison.processes import PeerError, run_tool, terminated_like_interrupted
from comparison.report import Comparison, write_json
from comparison.servers import Capacity
from comparison.settings import Settings, add_options, read_settings

from octavo.errors import OctavoError

HERE = Path(__file__).parent
TOOL_TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class Run:
    """quick: as little as shows that it works."""

    settings: Settings
    quick: bool


def engine_figures(run: Run) -> list[Comparison]:
    return [engine.compare(run.settings, Shape(32, 8) if run.quick else Shape(256, 64))]


def long_figures(run: Run) -> list[Comparison]:
    return [engine.compare(run.settings, Shape(128, 4, 256) if run.quick else Shape(4096, 32, 8000))]


def serve_figures(run: Run) -> list[Comparison]:
    if run.quick:
        return list(serve.compare(run.settings, LoadShape(24, 8, 0.5), (2,), 1))
    return list(serve.compare(run.settings, LoadShape(230, 64, 0.5), (1, 16), 3))


def startup_figures(run: Run) -> list[Comparison]:
    return [startup.compare(run.settings, Capacity(16, 1024))]


def linear_figures(run: Run) -> dict[str, Any]:
    few = ["--seconds", "0.01", "--rows", "1", "16", "--format", "q4_1"]
    return tool("ops/bench_linear.py", "--threads", str(run.settings.threads), "--json", *(few if run.quick else []))


def attention_figures(run: Run) -> dict[str, Any]:
    few = ["--seconds", "0.01", "--kv", "float32"]
    return tool("ops/bench_attention.py", "--threads", str(run.settings.threads), "--json", *(few if run.quick else []))


def step_overhead_figures(run: Run) -> dict[str, Any]:
    return {"runs": [tool("engine/step_overhead.py", "--logprobs", count) for count in ("0", "5")]}


def step_share_figures(run: Run) -> dict[str, Any]:
    sizes, steps = ((4,), 8) if run.quick else ((1, 8, 32), 64)
    return {"runs": [step_share.measure(run.settings, size, steps) for size in sizes]}


PARTS: dict[str, Callable[[Run], list[Comparison] | dict[str, Any]]] = {
    "engine": engine_figures,
    "serve": serve_figures,
    "long": long_figures,
    "startup": startup_figures,
    "step_overhead": step_overhead_figures,
    "step_share": step_share_figures,
    "linear": linear_figures,
    "attention": attention_figures,
}


def tool(script: str, *arguments: str) -> dict[str, Any]:
    """The JSON that a benchmark script prints. Raises PeerError if it fails or prints something else."""
    output, _ = run_tool(script, [sys.executable, str(HERE / script), *arguments], TOOL_TIMEOUT_S)
    try:
        figures = json.loads(output)
    except ValueError:
        raise PeerError(f"{script} printed something else than JSON: {output[:200]!r}") from None
    assert isinstance(figures, dict)
    return figures


def store(path: Path, facts: dict[str, object], settings: Settings, found: list[Comparison] | dict[str, Any]) -> None:
    """Write one figure file, and print it where it is a table."""
    if isinstance(found, dict):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**facts, "settings": settings.stored(), **found}, indent=1) + "\n")
        return
    for comparison in found:
        print(comparison.table(), end="\n\n", flush=True)
    write_json(path, facts, settings.stored(), found)


def main() -> int:
    """Returns 1 when a part failed; the others are stored all the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), metavar="PART", help="parts to run")
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--out", type=Path, default=HERE / "figures", metavar="DIR", help="where the files go")
    add_options(parser)
    values = parser.parse_args()
    failed = False
    try:
        run = Run(read_settings(values), values.quick)
    except OctavoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with terminated_like_interrupted():
        for name in values.only:
            print(f"== {name}", file=sys.stderr, flush=True)
            facts = gather(this_command())
            try:
                found = PARTS[name](run)
            except (OctavoError, PeerError) as error:
                print(f"{name} failed: {error}", file=sys.stderr)
                failed = True
                continue
            failed = failed or (isinstance(found, list) and any(comparison.rounds.errors for comparison in found))
            store(values.out / f"{name}.json", facts, run.settings, found)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
