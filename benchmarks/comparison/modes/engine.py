"""octavo's engine, in this process, against llama-bench: prefill and decode, at the start of a context or deep in it."""

from __future__ import annotations

from comparison import llama_bench
from comparison.octavo_engine import EngineUnderTest, Shape
from comparison.ratios import Metric
from comparison.report import Comparison
from comparison.rounds import OURS, Contestant, alternate
from comparison.settings import Settings

METRICS = (
    Metric("prefill_tok_s", "prefill", "tok/s"),
    Metric("prefill_gmac_s", "prefill, matrices", "GMAC/s"),
    Metric("decode_tok_s", "decode, batch 1", "tok/s"),
    Metric("decode_gb_s", "decode, stored weights", "GB/s"),
)


def compare(settings: Settings, shape: Shape) -> Comparison:
    """Alternate both on one shape."""
    engine = EngineUnderTest(settings, shape)
    try:
        contestants = [Contestant(OURS, lambda index: engine.measure())]
        if settings.llama_bench is not None:
            contestants.append(Contestant(llama_bench.NAME, lambda index: llama_bench.measure(settings, shape)))
        rounds = alternate(contestants, settings.rounds)
    finally:
        engine.close()
    notes = ["matrices: multiply-adds of all layers without output head and attention; stored weights: bytes in the file"]
    title = f"prefill of {shape.prefill} tokens, decode of {shape.decode} after {shape.depth}, {settings.threads} threads"
    return Comparison(title, METRICS, rounds, settings.rounds, notes)
