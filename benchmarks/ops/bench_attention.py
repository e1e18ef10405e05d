"""paged_attention: multiply-adds and cache bytes per second, decoding and prefilling, for each KV type and ISA.

Run:  python benchmarks/ops/bench_attention.py [--kv float32 float16] [--isa avx2] [--json]
Decode: one new token in each of several sequences; the keys and values it reads are counted as bytes. Prefill: the last tokens
of a prompt; what they multiply is counted: 2 * heads * head_dim for every position a token sees. Limit: reading, with numpy.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from one_op import AnyOps, compile_program, float_tensor, make_cpu, median_seconds, parser, step, streaming_read_gb_s

from octavo.ops.interface import AttentionSpec, KVCacheSpec
from octavo.ops.registry import AnyBackend

BLOCK_SIZE = 16
LAYERS = 8
"""Layers with caches of their own, so that a small context is not read from the CPU's caches again and again."""
FILL_TOKENS = 64
"""Tokens of each sequence written at a time before measuring."""
KV_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}


@dataclass(frozen=True, slots=True)
class Case:
    """num_seqs sequences with `new` tokens each at the end of `context` tokens, the new ones included."""

    name: str
    num_seqs: int
    new: int
    context: int

    @property
    def blocks_each(self) -> int:
        return -(-self.context // BLOCK_SIZE)

    @property
    def positions_seen(self) -> int:
        """Positions that all new tokens together look at."""
        first = self.context - self.new
        return self.num_seqs * sum(first + index + 1 for index in range(self.new))


@dataclass(frozen=True, slots=True)
class Heads:
    name: str
    num_heads: int
    num_kv_heads: int
    head_dim: int

    def layer(self, index: int) -> AttentionSpec:
        return AttentionSpec(index, self.num_heads, self.num_kv_heads, self.head_dim, self.head_dim**-0.5)


CASES = (
    Case("decode", 1, 1, 256),
    Case("decode", 1, 1, 8000),
    Case("decode", 16, 1, 512),
    Case("prefill", 1, 256, 256),
    Case("prefill", 1, 256, 4096),
)
HEADS = (Heads("9/3x64", 9, 3, 64), Heads("4/1x256", 4, 1, 256))
"""Query heads / KV heads x head size: SmolLM2-135M and Gemma 3 270M."""


@dataclass(frozen=True, slots=True)
class Figure:
    case: str
    heads: str
    kv: str
    isa: str
    num_seqs: int
    new: int
    context: int
    microseconds: float
    gmac_s: float
    kv_gb_s: float
    of_read: float


def fill_cache(backend: AnyBackend, case: Case, heads: Heads) -> None:
    """Write every position once: pages never written would all be one page of zeros, which no cache misses."""
    width = heads.num_kv_heads * heads.head_dim
    keys = np.random.default_rng(1).standard_normal((case.num_seqs * FILL_TOKENS, width), np.float32)
    table = backend.parameters.load_linear([float_tensor(keys)], [None])

    def forward(ops: AnyOps) -> Any:
        x = ops.embedding(table)
        for layer in range(LAYERS):
            ops.kv_write(x, x, heads.layer(layer))
        return x

    program = compile_program(backend, forward, len(keys), case.context)
    for first in range(0, case.context, FILL_TOKENS):
        new = min(FILL_TOKENS, case.context - first)
        program.run(step(case.num_seqs, new, first, case.blocks_each, BLOCK_SIZE))


def measure(case: Case, heads: Heads, kv: str, isa: str, threads: int, seconds: float, read_gb_s: float) -> Figure:
    """Time LAYERS layers; the queries of a layer are the results of the one before."""
    blocks = case.num_seqs * case.blocks_each
    cache = KVCacheSpec(LAYERS, blocks, heads.num_kv_heads, BLOCK_SIZE, heads.head_dim, kv)
    backend = make_cpu(isa, threads, cache)
    rows, width = case.num_seqs * case.new, heads.num_heads * heads.head_dim
    queries = np.random.default_rng(0).standard_normal((rows, width), np.float32)
    table = backend.parameters.load_linear([float_tensor(queries)], [None])

    def forward(ops: AnyOps) -> Any:
        x = ops.embedding(table)
        for layer in range(LAYERS):
            x = ops.paged_attention(x, heads.layer(layer))
        return x

    fill_cache(backend, case, heads)
    program = compile_program(backend, forward, rows, case.context)
    inputs = step(case.num_seqs, case.new, case.context - case.new, case.blocks_each, BLOCK_SIZE)
    elapsed_s = median_seconds(program, inputs, seconds) / LAYERS
    macs = 2 * width * case.positions_seen
    read_bytes = 2 * case.num_seqs * case.context * heads.num_kv_heads * heads.head_dim * KV_BYTES[kv]
    kv_gb_s = read_bytes / elapsed_s / 1e9
    return Figure(
        case=case.name,
        heads=heads.name,
        kv=kv,
        isa=isa,
        num_seqs=case.num_seqs,
        new=case.new,
        context=case.context,
        microseconds=elapsed_s * 1e6,
        gmac_s=macs / elapsed_s / 1e9,
        kv_gb_s=kv_gb_s,
        of_read=kv_gb_s / read_gb_s,
    )


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "--kv", nargs="+", choices=list(KV_BYTES), default=["float32", "float16"], help="types of the KV cache"
    )
    given = options.parse_args()
    read_gb_s = streaming_read_gb_s(given.threads)
    figures = [
        measure(case, heads, kv, isa, given.threads, given.seconds, read_gb_s)
        for isa in given.isa
        for heads in HEADS
        for kv in given.kv
        for case in CASES
    ]
    if given.json:
        limits = {"read_gb_s": read_gb_s}
        print(json.dumps({"threads": given.threads, "limits": limits, "figures": [asdict(figure) for figure in figures]}))
        return
    print(f"reading {read_gb_s:.1f} GB/s")
    print(f"{'case':<9}{'heads':<9}{'kv':<10}{'isa':<10}{'seqs':>5}{'new':>5}{'context':>8}{'us':>10}{'GMAC/s':>8}{'GB/s':>7}")
    for f in figures:
        shape = f"{f.case:<9}{f.heads:<9}{f.kv:<10}{f.isa:<10}{f.num_seqs:>5}{f.new:>5}{f.context:>8}"
        print(f"{shape}{f.microseconds:>10.0f}{f.gmac_s:>8.1f}{f.kv_gb_s:>7.1f}")


if __name__ == "__main__":
    main()
