"""48 mixed requests on the real model, and what one answer is, to the bit."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass

import numpy as np

from octavo.engine.frontend.outputs import RequestOutput
from octavo.engine.llm_engine import LLMEngine
from octavo.sampling_params import RequestOutputKind, SamplingParams

BLOCK_SIZE = 16
# Prompt lengths around multiples of the block size, of the attention's tiles and splits, and one long prompt.
LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 95, 96, 97, 127, 128, 129, 159, 160, 161, 200)
LONG = (255, 256, 257, 300, 511, 512, 513, 1500)
SHARED_PREFIX = 112  # several prompts begin alike, so that a warm cache is shared between requests


@dataclass(frozen=True)
class GateRequest:
    prompt: list[int]
    params: SamplingParams


def requests(vocab_size: int) -> list[GateRequest]:
    """The same 48 requests at every call: greedy and seeded sampling, penalties, bias, logprobs, stops, n = 2."""
    rng = np.random.default_rng(20261129)
    shared = rng.integers(100, vocab_size, SHARED_PREFIX).tolist()
    lengths = list(LENGTHS) + list(LONG) + [SHARED_PREFIX + extra for extra in range(16)]
    result = []
    for index, length in enumerate(lengths):
        prompt = rng.integers(100, vocab_size, length).tolist()
        if length >= SHARED_PREFIX and index % 2:
            prompt[:SHARED_PREFIX] = shared
        result.append(GateRequest(prompt, _params(index)))
    assert len(result) == 48
    return result


def _params(index: int) -> SamplingParams:
    params = SamplingParams(temperature=0.0, max_tokens=6 + index % 11, ignore_eos=True, logprobs=index % 4)
    if index % 3 == 1:
        params.temperature, params.seed = 0.7 + 0.1 * (index % 5), 1000 + index
        params.top_k, params.top_p, params.min_p = (0, 40)[index % 2], (1.0, 0.9)[index % 2], (0.0, 0.02)[index % 2]
    if index % 5 == 2:
        params.repetition_penalty, params.presence_penalty, params.frequency_penalty = 1.2, 0.5, 0.3
    if index % 7 == 3:
        params.logit_bias = {1000 + index: 5.0, 2000 + index: -5.0}
    if index % 12 == 7:
        params.n, params.logprobs = 2, 1
    if index % 16 == 5:
        params.ignore_eos, params.min_tokens, params.stop_token_ids = False, 4, [284, 198, 28]
    if index % 16 == 9:
        params.stop = [" the", "e"]
    if index % 16 == 13:
        params.prompt_logprobs = 2
    return params


def fingerprint(output: RequestOutput) -> bytes:
    """Every token, logprob, text and finish of a finished request, bit by bit (floats as stored, not as printed)."""
    parts: list[bytes] = []
    for choice in sorted(output.outputs, key=lambda choice: choice.index):
        parts.append(repr((choice.index, choice.token_ids, choice.text, choice.finish_reason, choice.stop_reason)).encode())
        for entry in choice.logprobs or []:
            parts.append(_logprob_bytes(entry.token_id, entry.rank, [entry.logprob, *entry.top_logprobs], entry.top_ids))
    for prompt_entry in output.prompt_logprobs or []:
        if prompt_entry is not None:
            values = [prompt_entry.logprob, *prompt_entry.top_logprobs]
            parts.append(_logprob_bytes(prompt_entry.token_id, prompt_entry.rank, values, prompt_entry.top_ids))
    return b"|".join(parts)


def _logprob_bytes(token_id: int, rank: int, values: list[float], top_ids: list[int]) -> bytes:
    return struct.pack(f"<2i{len(values)}d", token_id, rank, *values) + repr(top_ids).encode()


def serve_all(
    engine: LLMEngine,
    jobs: list[GateRequest],
    kind: RequestOutputKind = RequestOutputKind.FINAL_ONLY,
    heard: Counter[int] | None = None,
) -> list[RequestOutput]:
    """All requests at once, as one load; deltas are joined. heard: counts the deliveries of each."""
    for index, job in enumerate(jobs):
        engine.add_request(str(index), job.prompt, job.params, output_kind=kind)
    joined: dict[str, RequestOutput] = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            if heard is not None:
                heard[int(output.request_id)] += 1
            if output.request_id in joined:
                joined[output.request_id].append(output)
            else:
                joined[output.request_id] = output
    engine.check_integrity()
    return [joined[str(index)] for index in range(len(jobs))]


def serve_alone(engine: LLMEngine, jobs: list[GateRequest]) -> list[RequestOutput]:
    """One request after the other."""
    return [serve_all(engine, [job])[0] for job in jobs]
