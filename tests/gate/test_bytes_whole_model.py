"""The bytes gate at full depth: the shorter requests on the whole model, the mechanisms several at a time.

The other files have each of them alone and in every variant, on the model's first layers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.gate.test_bytes_in_flight import RecordedDrafter, assert_equal, make_engine
from tests.gate.test_structured_bytes import named
from tests.gate.witness import Witness
from tests.gate.workload import BLOCK_SIZE, GateRequest, requests, serve_all, serve_alone

from octavo.engine.frontend.outputs import RequestOutput


@pytest.fixture(scope="module")
def jobs() -> list[GateRequest]:
    return [job for job in requests(vocab_size=49152) if len(job.prompt) <= 300]


@pytest.fixture(scope="module")
def alone(smollm2_gguf: Path, jobs: list[GateRequest]) -> list[RequestOutput]:
    engine, _ = make_engine(smollm2_gguf, 1, max_num_batched_tokens=2048, chunked_prefill_size=2048)
    witness = Witness(engine)
    outputs = serve_alone(engine, jobs)
    engine.shutdown()
    assert witness.num_together == 2 and witness.num_cut == 0
    return outputs


def test_company_chunks_threads_and_cached_prefixes_do_not_change_a_byte(
    smollm2_gguf: Path, jobs: list[GateRequest], alone: list[RequestOutput]
) -> None:
    engine, _ = make_engine(smollm2_gguf, 1, num_threads=2, chunked_prefill_size=48, enable_prefix_caching=True)
    witness = Witness(engine)
    assert_equal(serve_all(engine, jobs), alone, "together, in chunks, cold")
    assert witness.num_together >= 12 and witness.num_cut > 0
    assert_equal(serve_all(engine, jobs), alone, "together, warm")
    assert engine.stats().prefix_hits > 0
    engine.shutdown()


@pytest.mark.parametrize(("mode", "depth"), [("swap", 2), ("recompute", 1)])
def test_preemption_and_steps_in_flight_do_not_change_a_byte(
    smollm2_gguf: Path, jobs: list[GateRequest], alone: list[RequestOutput], mode: str, depth: int
) -> None:
    blocks = 16
    short = [index for index, job in enumerate(jobs) if len(job.prompt) <= 200]
    engine, worker = make_engine(
        smollm2_gguf,
        depth,
        num_gpu_blocks_override=blocks,
        max_model_len=blocks * BLOCK_SIZE,
        preemption_mode=mode,
        admission="eager",
        num_swap_blocks_override=200,
    )
    outputs = serve_all(engine, [jobs[index] for index in short])
    stats = engine.stats()
    assert stats.num_preemptions > 0 and (stats.swap_in_bytes > 0) == (mode == "swap") and worker().most_in_flight == depth
    assert_equal(outputs, [alone[index] for index in short], f"preempted, {mode}, depth {depth}")
    engine.shutdown()


def test_drafts_and_reconfiguring_do_not_change_a_byte(
    smollm2_gguf: Path, jobs: list[GateRequest], alone: list[RequestOutput]
) -> None:
    engine, worker = make_engine(smollm2_gguf, 2, RecordedDrafter("random", named(alone)), num_threads=2)
    for index, job in enumerate(jobs):
        engine.add_request(str(index), job.prompt, job.params)
    changes: list[dict[str, Any]] = [{"block_size": 32}, {"num_blocks": 220}, {"max_num_seqs": 9}, {"block_size": 8}]
    outputs: dict[str, RequestOutput] = {}
    while engine.has_unfinished_requests():
        if changes and engine.stats().num_steps >= 3 * (5 - len(changes)):
            engine.reconfigure(**changes.pop(0))
        outputs.update({output.request_id: output for output in engine.step()})
    engine.check_integrity()
    assert not changes and worker().num_accepted > 0
    assert_equal([outputs[str(index)] for index in range(len(jobs))], alone, "drafts, reconfigured")
    engine.shutdown()
