"""The bytes gate for every way to hold weights, keys and values: alone on one thread or together on several, the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.gate.test_bytes import make_engine
from tests.gate.workload import fingerprint, requests, serve_all, serve_alone

LONGEST = 200
"""Tokens of the prompts taken: float weights are slow alone, and what is to be seen are tiles of all sizes."""

WEIGHTS: dict[str, dict[str, Any]] = {
    "q4_1 as stored": {},
    "int8": {"dtype": "float32", "quantization": "int8"},
    "int4": {"dtype": "float32", "quantization": "int4"},
    "int4 in groups of 128": {"dtype": "float32", "quantization": "int4", "quantization_group_size": 128},
    "w8a8": {"dtype": "float32", "quantization": "w8a8"},
    "bfloat16": {"dtype": "bfloat16"},
    "float32": {"dtype": "float32"},
}


def assert_company_changes_nothing(model: Path, options: dict[str, Any]) -> None:
    jobs = [job for job in requests(vocab_size=49152) if len(job.prompt) <= LONGEST][::2]
    assert len(jobs) >= 20
    engine = make_engine(model, num_threads=1, max_num_batched_tokens=2048, chunked_prefill_size=2048, **options)
    alone = [fingerprint(output) for output in serve_alone(engine, jobs)]
    engine.shutdown()
    for num_threads in (2, 3):
        engine = make_engine(model, num_threads=num_threads, **options)
        together = [fingerprint(output) for output in serve_all(engine, jobs)]
        engine.shutdown()
        assert together == alone, f"{num_threads} threads"


@pytest.mark.parametrize("weights", list(WEIGHTS))
def test_company_changes_no_byte_whatever_holds_the_weights(smollm2_start: Path, weights: str) -> None:
    assert_company_changes_nothing(smollm2_start, WEIGHTS[weights])


@pytest.mark.parametrize("kv_cache_dtype", ["float32", "bfloat16", "int8"])
def test_company_changes_no_byte_whatever_holds_the_keys(smollm2_start: Path, kv_cache_dtype: str) -> None:
    assert_company_changes_nothing(smollm2_start, {"kv_cache_dtype": kv_cache_dtype})


def test_company_changes_no_byte_with_mixed_k_quants_and_windows(gemma3_start: Path) -> None:
    assert_company_changes_nothing(gemma3_start, {})
