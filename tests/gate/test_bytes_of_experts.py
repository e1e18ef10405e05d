"""The bytes gate over a mixture of experts: where neighbours go, and how many rows an expert has, change no byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import expert_layers
from tests.gate.test_bytes import assert_equal, make_engine
from tests.gate.workload import BLOCK_SIZE, GateRequest, fingerprint, requests, serve_all, serve_alone

LONGEST = 330


@pytest.fixture(scope="module")
def experts_gguf(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return expert_layers.write(smollm2_gguf, tmp_path_factory.mktemp("experts") / "experts.gguf")


@pytest.fixture(scope="module")
def jobs() -> list[GateRequest]:
    jobs = [job for job in requests(vocab_size=49152) if len(job.prompt) <= LONGEST]
    assert len(jobs) >= 20
    return jobs


@pytest.fixture(scope="module")
def alone(experts_gguf: Path, jobs: list[GateRequest]) -> Iterator[list[bytes]]:
    engine = make_engine(experts_gguf, max_num_batched_tokens=2048, chunked_prefill_size=2048)
    yield [fingerprint(output) for output in serve_alone(engine, jobs)]
    engine.shutdown()


WAYS: dict[str, dict[str, Any]] = {
    "one batch": {},
    "three threads, wide steps": {"num_threads": 3, "max_num_batched_tokens": 2048, "chunked_prefill_size": 2048},
    "chunks of 16": {"chunked_prefill_size": 16, "max_num_batched_tokens": 256},
    "eager": {"enforce_eager": True, "num_threads": 2},
}


@pytest.mark.parametrize("way", WAYS)
def test_company_changes_no_byte(experts_gguf: Path, jobs: list[GateRequest], alone: list[bytes], way: str) -> None:
    engine = make_engine(experts_gguf, **WAYS[way])
    assert_equal(serve_all(engine, jobs), alone, way)
    engine.shutdown()


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_preemption_changes_no_byte(experts_gguf: Path, jobs: list[GateRequest], alone: list[bytes], mode: str) -> None:
    blocks = LONGEST // BLOCK_SIZE + 2
    options: dict[str, Any] = {"num_swap_blocks_override": 100} if mode == "swap" else {}
    engine = make_engine(
        experts_gguf,
        num_gpu_blocks_override=blocks,
        max_model_len=blocks * BLOCK_SIZE,
        preemption_mode=mode,
        admission="eager",
        **options,
    )
    assert_equal(serve_all(engine, jobs), alone, mode)
    stats = engine.stats()
    assert stats.num_preemptions > 0 and (stats.num_swap_preemptions > 0) == (mode == "swap")
    engine.shutdown()


def test_cached_prefixes_change_no_byte(experts_gguf: Path, jobs: list[GateRequest], alone: list[bytes]) -> None:
    engine = make_engine(experts_gguf, enable_prefix_caching=True)
    serve_all(engine, jobs)
    outputs = serve_all(engine, jobs)
    assert_equal(outputs, alone, "cached")
    assert any(output.num_cached_tokens for output in outputs)
    engine.shutdown()
