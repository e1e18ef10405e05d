"""Workload: the prompts and output lengths of a run: from a file or built-in English, of exact lengths where possible."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from octavo.errors import ConfigError
from octavo.loadgen.words import sentences

WORDS_PER_TOKEN = 0.8
"""Measured on the built-in text with SmolLM2's tokenizer; used only where the server has no /tokenize."""

_ATTEMPTS = 16


class TextCodec(Protocol):
    """Text to ids and back, in process or by asking a server."""

    async def encode(self, text: str) -> list[int]: ...

    async def decode(self, token_ids: list[int]) -> str: ...


@dataclass(frozen=True, slots=True)
class Job:
    """One request. prompt_len is exact, or an estimate when no tokenizer was at hand."""

    prompt: str
    prompt_len: int
    output_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """What to send.

    input_len, output_len   tokens; range_ratio r draws each from [len * (1 - r), len * (1 + r)]
    shared_prefix           tokens at the start that all prompts have in common, on top of input_len
    text_file               take the text from this file instead of making it
    """

    num_prompts: int
    input_len: int
    output_len: int
    range_ratio: float = 0.0
    shared_prefix: int = 0
    text_file: str | None = None
    seed: int = 0


async def make_jobs(spec: WorkloadSpec, codec: TextCodec | None) -> list[Job]:
    """The jobs of a run; equal specs give equal jobs."""
    rng = random.Random(spec.seed)
    words = _words(spec, rng)
    prefix = await _text_of(words, spec.shared_prefix, codec) if spec.shared_prefix else ""
    jobs = []
    for _ in range(spec.num_prompts):
        input_len, output_len = _draw(rng, spec.input_len, spec.range_ratio), _draw(rng, spec.output_len, spec.range_ratio)
        text = await _text_of(words, input_len, codec)
        prompt = f"{prefix} {text}" if prefix else text
        prompt_len = len(await codec.encode(prompt)) if codec is not None and prefix else spec.shared_prefix + input_len
        jobs.append(Job(prompt, prompt_len, output_len))
    return jobs


def _draw(rng: random.Random, length: int, ratio: float) -> int:
    return max(1, rng.randint(round(length * (1 - ratio)), round(length * (1 + ratio))))


async def _text_of(words: Iterator[str], num_tokens: int, codec: TextCodec | None) -> str:
    """A text of num_tokens tokens.

    Cutting token ids and decoding them usually gives a text that encodes to the same number again; where a cut falls inside a
    word it may not, so a few cuts are tried and the last one is taken as it is.
    """
    if codec is None:
        return " ".join(_take(words, max(1, round(num_tokens * WORDS_PER_TOKEN))))
    text = ""
    for _ in range(_ATTEMPTS):
        token_ids: list[int] = []
        taken: list[str] = []
        while len(token_ids) < num_tokens:
            taken += _take(words, num_tokens - len(token_ids) + 4)
            token_ids = await codec.encode(" ".join(taken))
        text = await codec.decode(token_ids[:num_tokens])
        if len(await codec.encode(text)) == num_tokens:
            break
    return text


def _take(words: Iterator[str], count: int) -> list[str]:
    return [next(words) for _ in range(count)]


def _words(spec: WorkloadSpec, rng: random.Random) -> Iterator[str]:
    """An endless run of words."""
    if spec.text_file is None:
        for sentence in sentences(rng):
            yield from sentence.split(" ")
    try:
        words = Path(spec.text_file or "").read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--text-file {spec.text_file}: {error}", param="text_file") from None
    if not words:
        raise ConfigError(f"--text-file {spec.text_file} holds no words", param="text_file")
    position = rng.randrange(len(words))
    while True:
        yield words[position]
        position = (position + 1) % len(words)
