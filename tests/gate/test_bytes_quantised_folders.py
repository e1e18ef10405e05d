"""The bytes gate over folders of codes: AWQ, and GPTQ whose columns are in the order of activations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import byte_backend
from tests.gate.test_bytes import make_engine
from tests.gate.workload import GateRequest, fingerprint, requests, serve_all, serve_alone
from tests.models.test_quantised_folders import CONFIG, KINDS, tensors_of
from tests.quantised_folders import write

LONGEST = 200


def jobs() -> list[GateRequest]:
    """Those whose token ids a vocabulary of bytes has."""
    work = [job for job in requests(vocab_size=CONFIG["vocab_size"]) if len(job.prompt) <= LONGEST]
    return [job for job in work if not job.params.logit_bias and not job.params.stop_token_ids]


@pytest.mark.parametrize("kind", ["awq, groups of 32", "gptq of 4 bits by activation"])
def test_company_chunks_cache_and_threads_change_no_byte(kind: str, tmp_path: Path) -> None:
    section, make = KINDS[kind]
    folder = write(tmp_path / "model", {**CONFIG, "quantization_config": section}, tensors_of(make)[0])
    byte_backend().save(str(folder / "tokenizer.json"))
    work = jobs()
    assert len(work) >= 30

    def answers(serve: Any, **options: Any) -> list[bytes]:
        engine = make_engine(folder, max_model_len=256, **options)
        served = [fingerprint(output) for output in serve(engine, work)]
        engine.shutdown()
        return served

    alone = answers(serve_alone)
    assert len(set(alone)) == len(work)
    for options in (
        {"num_threads": 2},
        {"max_num_batched_tokens": 48, "chunked_prefill_size": 19},
        {"enable_prefix_caching": True},
        {"num_gpu_blocks_override": 20},
        {"enforce_eager": True},
    ):
        assert answers(serve_all, **options) == alone, json.dumps(options)
