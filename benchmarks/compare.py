"""octavo against its peers on this machine, in turns on the same load; prints ratios with their spread.

python benchmarks/compare.py prefill-decode --llama-bench PATH            prefill and decode of one sequence
python benchmarks/compare.py long           --llama-bench PATH            a prompt of 4096 tokens, decode at 8000
python benchmarks/compare.py serve          --llama-server PATH --openvino-python PATH --url NAME=URL
python benchmarks/compare.py sweep          --llama-server PATH --json sweep.json --plot sweep.svg
python benchmarks/compare.py batch          --openvino-python PATH        offline batch, no servers
python benchmarks/compare.py startup        --llama-server PATH           command to first token, memory
python benchmarks/compare.py plot sweep.json sweep.svg

Peers that are not named are left out. Servers are started on free ports of 127.0.0.1 and stopped again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from comparison import llama_bench, openvino
from comparison.facts import gather, this_command
from comparison.load import LoadShape
from comparison.modes import batch, engine, serve, startup
from comparison.octavo_engine import Shape
from comparison.plot import draw, require_matplotlib
from comparison.processes import PeerError, terminated_like_interrupted
from comparison.report import Comparison, write_json
from comparison.servers import Capacity
from comparison.settings import Settings, add_options, read_settings

from octavo.errors import ConfigError, OctavoError

SWEEP = (1, 2, 4, 8, 16, 32, 64)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True, metavar="MODE")
    for name, (prefill, decode, depth) in {"prefill-decode": (256, 32, 0), "long": (4096, 32, 8000)}.items():
        mode = modes.add_parser(name)
        mode.add_argument("--prefill", type=int, default=prefill, help=f"prompt tokens (default {prefill}; 0 leaves it out)")
        mode.add_argument("--decode", type=int, default=decode, help=f"generated tokens (default {decode}; 0 leaves it out)")
        mode.add_argument("--depth", type=int, default=depth, help=f"context before the generated tokens (default {depth})")
    for name, levels in {"serve": (1, 16), "sweep": SWEEP, "batch": (16,)}.items():
        mode = modes.add_parser(name)
        mode.add_argument(
            "--concurrency", type=int, nargs="+", default=list(levels), help=f"requests at once (default {levels})"
        )
        mode.add_argument("--per-client", type=int, default=2, help="requests per round, for each at once (default 2)")
        mode.add_argument("--input-len", type=int, default=230, help="mean prompt tokens (default 230)")
        mode.add_argument("--output-len", type=int, default=64, help="mean output tokens (default 64)")
        mode.add_argument("--spread", type=float, default=0.5, help="lengths vary by this share of the mean (default 0.5)")
        mode.add_argument("--text-file", help="cut the prompts from this text (default: made-up English)")
        if name == "sweep":
            mode.add_argument("--plot", type=Path, metavar="FILE", help="draw the result (.svg or .png; needs matplotlib)")
    mode = modes.add_parser("startup")
    mode.add_argument("--sequences", type=int, default=16, help="sequences a server must have room for (default 16)")
    mode.add_argument("--tokens", type=int, default=1024, help="tokens of each (default 1024)")
    for mode in modes.choices.values():
        add_options(mode)
    mode = modes.add_parser("plot")
    mode.add_argument("sweep", type=Path)
    mode.add_argument("picture", type=Path)
    return parser


def run_mode(values: argparse.Namespace, settings: Settings) -> Iterator[Comparison]:
    """The comparisons of a mode, each as soon as it is done. Raises ConfigError naming an option."""
    if values.mode in ("prefill-decode", "long"):
        if min(values.prefill, values.decode, values.depth) < 0 or not values.prefill + values.decode:
            raise ConfigError("--prefill, --decode and --depth must not be negative, and one of the first two is needed")
        yield engine.compare(settings, Shape(values.prefill, values.decode, values.depth))
        return
    if values.mode == "startup":
        yield startup.compare(settings, Capacity(values.sequences, values.tokens))
        return
    if min(values.concurrency) < 1 or min(values.per_client, values.input_len, values.output_len) < 1:
        raise ConfigError("--concurrency, --per-client, --input-len and --output-len must be at least 1")
    if not 0 <= values.spread < 1:
        raise ConfigError(f"--spread {values.spread}: must be from 0 to below 1")
    shape = LoadShape(values.input_len, values.output_len, values.spread, values.text_file)
    if values.mode == "batch":
        yield from (batch.compare(settings, shape, size, values.per_client) for size in values.concurrency)
        return
    yield from serve.compare(settings, shape, values.concurrency, values.per_client)


def versions(settings: Settings) -> dict[str, str]:
    """Of the peers that are files; a server behind a URL is whatever its owner says."""
    found = {}
    for name, path in (("llama-server", settings.llama_server), ("llama-bench", settings.llama_bench)):
        # llama-bench of older builds knows no --version; its JSON names the commit, and both come from one build.
        if path is not None:
            try:
                found[name] = llama_bench.version(path)
            except PeerError:
                found[name] = "unknown"
    if settings.openvino_python is not None:
        found["openvino-genai"] = openvino.version(settings.openvino_python)
    return found


def main() -> int:
    values = make_parser().parse_args()
    try:
        with terminated_like_interrupted():
            if values.mode == "plot":
                draw(values.sweep, values.picture)
                return 0
            return compare(values)
    except (OctavoError, PeerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def compare(values: argparse.Namespace) -> int:
    """Run, print, store. Returns 1 when a contestant failed in any round."""
    plot = getattr(values, "plot", None)
    if plot is not None:
        require_matplotlib()
        if values.json is None:
            raise ConfigError("--plot needs --json, so that the picture can be drawn again")
    settings = read_settings(values)
    facts = gather(this_command()) | {"peers": versions(settings)}
    own = {"mode": values.mode, "concurrency": getattr(values, "concurrency", None)}
    comparisons: list[Comparison] = []
    for comparison in run_mode(values, settings):
        comparisons.append(comparison)
        print(comparison.table(), end="\n\n", flush=True)
        if values.json is not None:
            # After each, so that a sweep that is interrupted keeps what it has.
            write_json(values.json, facts, settings.stored() | own, comparisons)
    if plot is not None:
        draw(values.json, plot)
    return int(any(comparison.rounds.errors for comparison in comparisons))


if __name__ == "__main__":
    sys.exit(main())
