"""Workloads: exact lengths, shared prefixes, equal seeds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from octavo.errors import ConfigError
from octavo.loadgen.workload import WorkloadSpec, make_jobs


class LetterCodec:
    """Tokens of up to three letters, so that cuts fall inside words."""

    async def encode(self, text: str) -> list[int]:
        pieces = [text[start : start + 3] for start in range(0, len(text), 3)]
        return [int.from_bytes(piece.encode(), "little") for piece in pieces]

    async def decode(self, token_ids: list[int]) -> str:
        return b"".join(token_id.to_bytes(3, "little").rstrip(b"\0") for token_id in token_ids).decode()


def test_prompts_have_the_exact_length() -> None:
    codec = LetterCodec()
    jobs = asyncio.run(make_jobs(WorkloadSpec(num_prompts=5, input_len=40, output_len=7), codec))
    for job in jobs:
        assert len(asyncio.run(codec.encode(job.prompt))) == job.prompt_len == 40 and job.output_len == 7
    assert len({job.prompt for job in jobs}) == 5


def test_lengths_vary_within_the_ratio() -> None:
    jobs = asyncio.run(make_jobs(WorkloadSpec(num_prompts=50, input_len=100, output_len=10, range_ratio=0.5), None))
    assert {job.prompt_len for job in jobs} <= set(range(50, 151)) and len({job.prompt_len for job in jobs}) > 5


def test_shared_prefix_is_shared() -> None:
    jobs = asyncio.run(make_jobs(WorkloadSpec(num_prompts=3, input_len=30, output_len=1, shared_prefix=60), LetterCodec()))
    assert len({job.prompt[:150] for job in jobs}) == 1 and len({job.prompt for job in jobs}) == 3


def test_equal_seeds_give_equal_jobs() -> None:
    specs = [WorkloadSpec(num_prompts=2, input_len=20, output_len=1, seed=seed) for seed in (1, 1, 2)]
    first, same, other = (asyncio.run(make_jobs(spec, None)) for spec in specs)
    assert first == same != other


def test_text_comes_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("alpha beta\ngamma")
    jobs = asyncio.run(make_jobs(WorkloadSpec(num_prompts=1, input_len=10, output_len=1, text_file=str(file)), None))
    assert set(jobs[0].prompt.split()) == {"alpha", "beta", "gamma"}


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"])
def test_unusable_file_is_one_error(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "text.txt"
    if content is not None:
        file.write_bytes(content)
    spec = WorkloadSpec(num_prompts=1, input_len=10, output_len=1, text_file=str(file))
    with pytest.raises(ConfigError, match="--text-file"):
        asyncio.run(make_jobs(spec, None))
