"""llama-bench's arguments and JSON."""

from __future__ import annotations

import json

import pytest
from comparison.llama_bench import bench_arguments, parse
from comparison.octavo_engine import Shape
from comparison.processes import PeerError


def entry(n_prompt: int, n_gen: int, avg_ts: float) -> dict[str, object]:
    """The fields we read of one test, as llama-bench -o json prints them, and one of the many others."""
    return {"build_commit": "0c1e570", "n_prompt": n_prompt, "n_gen": n_gen, "n_depth": 0, "avg_ts": avg_ts}


def test_a_prompt_test_is_prefill_and_a_generation_test_is_decode() -> None:
    output = json.dumps([entry(256, 0, 325.5), entry(0, 32, 67.25)])
    assert parse(output) == {"prefill_tok_s": 325.5, "decode_tok_s": 67.25}


@pytest.mark.parametrize("output", ["", "not json", "[]", "{}", '[{"n_prompt": 1}]', "[1]", '[{"n_prompt": 1, "avg_ts": "x"}]'])
def test_anything_else_is_a_peer_error(output: str) -> None:
    with pytest.raises(PeerError, match="llama-bench"):
        parse(output)


def test_a_depth_is_a_run_of_its_own_so_that_the_prompt_is_measured_without_it() -> None:
    assert list(bench_arguments(Shape(256, 32))) == [["-p", "256", "-n", "32"]]
    assert list(bench_arguments(Shape(4096, 32, 8000))) == [["-p", "4096", "-n", "0"], ["-p", "0", "-n", "32", "-d", "8000"]]
    assert list(bench_arguments(Shape(0, 32, 8000))) == [["-p", "0", "-n", "32", "-d", "8000"]]
