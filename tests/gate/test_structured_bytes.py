"""The bytes gate for answers with a form: alone, in company, preempted, in flight, with drafts; and their free neighbours."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.gate.test_bytes_in_flight import RecordedDrafter, assert_equal, make_engine
from tests.gate.workload import BLOCK_SIZE, GateRequest, requests, serve_all, serve_alone

from octavo.dialogue.forms import HERMES_FORM, as_params, required_calls
from octavo.engine.frontend.outputs import RequestOutput
from octavo.sampling_params import SamplingParams
from octavo.structured_outputs import StructuredOutputsParams

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 130}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORMS = (
    StructuredOutputsParams(json=PERSON, whitespace_pattern="[ ]?"),
    StructuredOutputsParams(choice=["yes", "no", "it depends"]),
    StructuredOutputsParams(regex=r"[a-z]{3,12}(-[0-9]{2,4})?"),
    StructuredOutputsParams(json_object=True),
    StructuredOutputsParams(grammar='root ::= "(" root ")" | "x"'),
    as_params(required_calls(HERMES_FORM, [{"name": "add", "parameters": PERSON}, {"name": "now"}], several=True)),
)


@pytest.fixture(scope="module")
def jobs() -> list[GateRequest]:
    """Every form, also tool calls, greedy and seeded, with whatever else changes a row; then as many requests without one."""
    prompts = [job.prompt for job in requests(vocab_size=49152) if len(job.prompt) < 140]
    made = []
    for index, (prompt, form) in enumerate(zip(prompts, (FORMS * 4)[:20], strict=False)):
        params = SamplingParams(max_tokens=24, temperature=0.0 if index % 3 == 0 else 1.0, seed=index, structured_outputs=form)
        if index % 4 == 1:
            params.logprobs, params.n = 2, 2
        if index % 4 == 2:
            params.repetition_penalty, params.frequency_penalty, params.min_tokens = 1.2, 0.4, 6
        if index % 4 == 3:
            params.logit_bias, params.bad_words, params.ignore_eos = {1000 + index: 5.0}, ["the"], True
        made.append(GateRequest(prompt, params))
    return made + [job for job in requests(vocab_size=49152) if len(job.prompt) < 140][:16]


@pytest.fixture(scope="module")
def alone(smollm2_gguf: Path, jobs: list[GateRequest]) -> list[RequestOutput]:
    engine, _ = make_engine(smollm2_gguf, 1)
    outputs = serve_alone(engine, jobs)
    engine.shutdown()
    formed = [
        choice for job, output in zip(jobs, outputs, strict=True) if job.params.structured_outputs for choice in output.outputs
    ]
    assert {choice.finish_reason for choice in formed} == {"stop", "length"}
    assert all(choice.text in ("yes", "no", "it depends") for output in outputs[1:20:6] for choice in output.outputs)
    return outputs


def named(outputs: list[RequestOutput]) -> list[RequestOutput]:
    """By the ids that a load of all of them has."""
    for index, output in enumerate(outputs):
        output.request_id = str(index)
    return outputs


@pytest.mark.parametrize("depth", [1, 2])
def test_one_batch_gives_the_same_bytes(
    smollm2_gguf: Path, jobs: list[GateRequest], alone: list[RequestOutput], depth: int
) -> None:
    engine, _ = make_engine(smollm2_gguf, depth, chunked_prefill_size=64)
    assert_equal(serve_all(engine, jobs), alone, f"one batch, depth {depth}")
    engine.shutdown()


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_preemption_gives_the_same_bytes(
    smollm2_gguf: Path, jobs: list[GateRequest], alone: list[RequestOutput], mode: str
) -> None:
    blocks = 20
    engine, _ = make_engine(
        smollm2_gguf,
        1,
        num_gpu_blocks_override=blocks,
        max_model_len=blocks * BLOCK_SIZE,
        preemption_mode=mode,
        admission="eager",
        num_swap_blocks_override=200,
    )
    outputs = serve_all(engine, jobs)
    assert engine.stats().num_preemptions > 0
    assert_equal(outputs, alone, f"preempted, {mode}")
    engine.shutdown()


@pytest.mark.parametrize("kind", ["right", "wrong", "random"])
def test_drafts_give_the_same_bytes(smollm2_gguf: Path, jobs: list[GateRequest], alone: list[RequestOutput], kind: str) -> None:
    engine, worker = make_engine(smollm2_gguf, 1, RecordedDrafter(kind, named(alone)))
    assert_equal(serve_all(engine, jobs), alone, f"drafts {kind}")
    assert worker().num_drafts > 100 and (worker().num_accepted > 0) == (kind != "wrong")
    engine.shutdown()


def test_neighbours_are_what_they_are_without_them(
    smollm2_gguf: Path, jobs: list[GateRequest], alone: list[RequestOutput]
) -> None:
    engine, _ = make_engine(smollm2_gguf, 1)
    free = [index for index, job in enumerate(jobs) if job.params.structured_outputs is None]
    assert_equal(serve_all(engine, [jobs[index] for index in free]), [alone[index] for index in free], "without forms")
    engine.shutdown()
