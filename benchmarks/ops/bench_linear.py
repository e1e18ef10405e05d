"""linear: multiply-adds and weight bytes per second for each storage format, row count and ISA, next to measured limits.

Run:  python benchmarks/ops/bench_linear.py [--format q4_1 q8_0] [--rows 1 16 256] [--isa avx2] [--json]
Many weights stand one after the other, more than the caches hold, as in a model: one row streams them from memory.
Limits: reading is measured with numpy; arithmetic has no probe here, so the best figure seen among the integer (or float)
formats stands in for it. Shares of that "best seen" compare formats and row counts; they are not shares of the machine's peak.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import ml_dtypes
import numpy as np
from one_op import AnyOps, compile_program, float_tensor, make_cpu, median_seconds, parser, step, streaming_read_gb_s

from octavo.loader.formats import bytes_per_row
from octavo.loader.stored import StoredRows
from octavo.ops.interface import KVCacheSpec
from octavo.ops.registry import AnyBackend

FLOATS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
BLOCKS = {
    "q8_0": (34, (0,)),
    "q4_0": (18, (0,)),
    "q4_1": (20, (0, 2)),
    "q5_0": (22, (0,)),
    "q5_1": (24, (0, 2)),
    "q2_k": (84, (80, 82)),
    "q3_k": (110, (108,)),
    "q4_k": (144, (0, 2)),
    "q5_k": (176, (0, 2)),
    "q6_k": (210, (208,)),
}
"""Bytes of a block, and where its float16 scales lie."""
ROWS = (1, 2, 4, 8, 16, 64, 256)
OUTPUTS, COLUMNS = 1536, 1536
THIN_ROWS = 8
"""Up to here the weights outweigh the arithmetic: use as many as leave the caches."""
THIN_BYTES, THIN_WEIGHTS_MAX = 96 << 20, 64
WIDE_WEIGHTS = 4
CACHE = KVCacheSpec(num_layers=1, num_blocks=64, num_kv_heads=1, block_size=16, head_dim=8, dtype="float32")


@dataclass(slots=True)
class Figure:
    """One measurement; the shares are filled in when all are known."""

    format: str
    isa: str
    rows: int
    gmac_s: float
    weight_gb_s: float
    of_read: float = 0.0
    of_best_seen: float = 0.0


def random_weight(rng: np.random.Generator, format: str, rows: int, columns: int) -> StoredRows:
    """Random values: small floats, or random codes with scales of ordinary size."""
    if format in FLOATS:
        values = (rng.standard_normal((rows, columns), np.float32) * 0.02).astype(FLOATS[format])
        return StoredRows("weight", (rows, columns), format, values.view(np.uint8), None, "memory: weight")
    data = rng.integers(0, 256, (rows, bytes_per_row(format, columns)), np.uint8)
    block, offsets = BLOCKS[format]
    blocks = data.reshape(rows, -1, block)
    for offset in offsets:
        scales = rng.uniform(0.0001, 0.001, blocks.shape[:2]).astype(np.float16)
        blocks[:, :, offset : offset + 2] = scales[..., None].view(np.uint8)
    return StoredRows("weight", (rows, columns), format, data, None, "memory: weight")


def measure(isa: str, threads: int, formats: list[str], row_counts: list[int], seconds: float) -> list[Figure]:
    """Figures of one ISA."""
    rng = np.random.default_rng(0)
    figures = []
    for format in formats:
        backend = make_cpu(isa, threads, CACHE)
        # The rows enter as an embedding table.
        table = backend.parameters.load_linear(
            [float_tensor(rng.standard_normal((max(row_counts), COLUMNS), np.float32))], [None]
        )
        stored = random_weight(rng, format, OUTPUTS, COLUMNS)
        weights = [backend.parameters.load_linear([stored], [None])]
        while len(weights) < min(THIN_WEIGHTS_MAX, -(-THIN_BYTES // weights[0].bytes)):
            weights.append(backend.parameters.load_linear([stored], [None]))
        for rows in row_counts:
            used = weights if rows <= THIN_ROWS else weights[:WIDE_WEIGHTS]
            elapsed_s = time_products(backend, table, used, rows, seconds) / len(used)
            macs = rows * OUTPUTS * COLUMNS
            figures.append(Figure(format, isa, rows, macs / elapsed_s / 1e9, weights[0].bytes / elapsed_s / 1e9))
    return figures


def time_products(backend: AnyBackend, table: Any, weights: list[Any], rows: int, seconds: float) -> float:
    """Seconds of the sum of x times each weight; the additions are fused into the products."""

    def forward(ops: AnyOps) -> Any:
        x = ops.embedding(table)
        total = ops.linear(x, weights[0])
        for weight in weights[1:]:
            total = ops.add(ops.linear(x, weight), total)
        return total

    program = compile_program(backend, forward, rows, rows)
    return median_seconds(program, step(1, rows, 0, -(-rows // CACHE.block_size), CACHE.block_size), seconds)


def fill_shares(figures: list[Figure], read_gb_s: float) -> dict[str, float]:
    """Set of_read and of_best_seen; returns the limits: measured reading, best arithmetic seen by kind of product."""
    best = {"float": 0.0, "integer": 0.0}
    for figure in figures:
        kind = "float" if figure.format in FLOATS else "integer"
        best[kind] = max(best[kind], figure.gmac_s)
    for figure in figures:
        figure.of_read = figure.weight_gb_s / read_gb_s
        figure.of_best_seen = figure.gmac_s / best["float" if figure.format in FLOATS else "integer"]
    return {"read_gb_s": read_gb_s, **{f"best_seen_{kind}_gmac_s": value for kind, value in best.items() if value}}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--format", nargs="+", choices=[*FLOATS, *BLOCKS], default=[*FLOATS, *BLOCKS])
    options.add_argument("--rows", type=int, nargs="+", default=list(ROWS))
    given = options.parse_args()
    figures = [figure for isa in given.isa for figure in measure(isa, given.threads, given.format, given.rows, given.seconds)]
    limits = fill_shares(figures, streaming_read_gb_s(given.threads))
    if given.json:
        print(json.dumps({"threads": given.threads, "limits": limits, "figures": [asdict(figure) for figure in figures]}))
        return
    print("  ".join(f"{name} {value:.1f}" for name, value in limits.items()))
    print(f"{'format':<8}{'isa':<10}{'rows':>5}{'GMAC/s':>9}{'of best':>9}{'GB/s':>8}{'of read':>9}")
    for f in figures:
        print(
            f"{f.format:<8}{f.isa:<10}{f.rows:>5}{f.gmac_s:>9.1f}{f.of_best_seen:>9.0%}{f.weight_gb_s:>8.1f}{f.of_read:>9.0%}"
        )


if __name__ == "__main__":
    main()
