"""The bytes gate for answers with a form: alone, in company, preempted, in flight, with drafts; and their free neighbours.

All with forced tokens appended as soon as they are known; without that the bytes are the same, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.gate.test_bytes_in_flight import RecordedDrafter, assert_equal, make_engine
from tests.gate.workload import BLOCK_SIZE, GateRequest, requests, serve_all, serve_alone

from octavo.dialogue.call_form import HERMES_FORM, as_params, possible_calls, required_calls
from octavo.engine.frontend.outputs import RequestOutput
from octavo.sampling_params import SamplingParams
from octavo.structured_outputs import StructuredOutputsParams

PERSON = {
    "type": "object",
    "properties": {
        "kind": {"const": "a person who answers"},
        "age of the person": {"type": "integer", "minimum": 0, "maximum": 130},
        "name": {"type": "string", "maxLength": 20},
    },
    "required": ["kind", "age of the person", "name"],
    "additionalProperties": False,
}
CHOICES = ["yes", "no", "it depends on the weather at the end of the week"]
FORMS = (
    StructuredOutputsParams(json=PERSON, disable_any_whitespace=True),
    StructuredOutputsParams(choice=CHOICES),
    StructuredOutputsParams(regex=r"[a-z]{3,6}(-[0-9]{2,4})? and then the end\."),
    StructuredOutputsParams(json_object=True),
    StructuredOutputsParams(grammar='root ::= "(" root ")" | "x"'),
)
FUNCTIONS: list[dict[str, Any]] = [{"name": "add", "parameters": PERSON, "strict": True}, {"name": "now"}]
CALLS = (
    as_params(required_calls(HERMES_FORM, FUNCTIONS, several=True)),
    as_params(required_calls(HERMES_FORM, FUNCTIONS[:1], several=False)),
    as_params(possible_calls(HERMES_FORM, FUNCTIONS, several=True)),
)


@pytest.fixture(scope="module")
def jobs() -> list[GateRequest]:
    """Every form and tool calls, greedy and seeded, with whatever else changes a row; then as many requests without a form."""
    prompts = [job.prompt for job in requests(vocab_size=49152) if len(job.prompt) < 140]
    made = []
    for index, (prompt, form) in enumerate(zip(prompts, FORMS * 4, strict=False)):
        params = SamplingParams(max_tokens=24, temperature=0.0 if index % 3 == 0 else 1.0, seed=index, structured_outputs=form)
        if index % 4 == 1:
            params.logprobs, params.n = 2, 2
        if index % 4 == 2:
            params.repetition_penalty, params.frequency_penalty, params.min_tokens = 1.2, 0.4, 6
        if index % 4 == 3:
            params.logit_bias, params.bad_words, params.ignore_eos = {1000 + index: 5.0}, ["zebra"], True
        if index % 5 == 0 and index > 5:
            params.stop, params.max_tokens = ["who answers"], 60  # in the middle of what is forced
        if index in (6, 7):
            params.allowed_token_ids = list(range(20, 30000))
        if index == 11:
            params.stop_token_ids = [1251]
        made.append(GateRequest(prompt, params))
    for seed, calls in enumerate(CALLS, start=20):
        params = SamplingParams(max_tokens=24, temperature=seed % 2 * 1.0, seed=seed, structured_outputs=calls)
        made.append(GateRequest(prompts[-1], params))
    return made + [job for job in requests(vocab_size=49152) if len(job.prompt) < 140][:16]


@pytest.fixture(scope="module")
def alone(smollm2_start: Path, jobs: list[GateRequest]) -> list[RequestOutput]:
    engine, _ = make_engine(smollm2_start, 1)
    outputs = serve_alone(engine, jobs)
    engine.shutdown()
    formed = [
        choice for job, output in zip(jobs, outputs, strict=True) if job.params.structured_outputs for choice in output.outputs
    ]
    assert {choice.finish_reason for choice in formed} == {"stop", "length"}
    chosen = [choice for output in outputs[1:20:5] for choice in output.outputs if choice.finish_reason == "stop"]
    assert chosen and all(choice.text in CHOICES for choice in chosen)
    assert any(choice.stop_reason == "who answers" for choice in formed)
    return outputs


def named(outputs: list[RequestOutput]) -> list[RequestOutput]:
    """By the ids that a load of all of them has."""
    for index, output in enumerate(outputs):
        output.request_id = str(index)
    return outputs


@pytest.mark.parametrize("depth", [1, 2])
def test_one_batch_gives_the_same_bytes(
    smollm2_start: Path, jobs: list[GateRequest], alone: list[RequestOutput], depth: int
) -> None:
    engine, _ = make_engine(smollm2_start, depth, chunked_prefill_size=64)
    assert_equal(serve_all(engine, jobs), alone, f"one batch, depth {depth}")
    engine.shutdown()


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_preemption_gives_the_same_bytes(
    smollm2_start: Path, jobs: list[GateRequest], alone: list[RequestOutput], mode: str
) -> None:
    blocks = 20
    engine, _ = make_engine(
        smollm2_start,
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
def test_drafts_give_the_same_bytes(
    smollm2_start: Path, jobs: list[GateRequest], alone: list[RequestOutput], kind: str
) -> None:
    engine, worker = make_engine(smollm2_start, 1, RecordedDrafter(kind, named(alone)))
    assert_equal(serve_all(engine, jobs), alone, f"drafts {kind}")
    assert worker().num_drafts > 100 and (worker().num_accepted > 0) == (kind != "wrong")
    engine.shutdown()


def test_neighbours_are_what_they_are_without_them(
    smollm2_start: Path, jobs: list[GateRequest], alone: list[RequestOutput]
) -> None:
    engine, _ = make_engine(smollm2_start, 1)
    free = [index for index, job in enumerate(jobs) if job.params.structured_outputs is None]
    assert_equal(serve_all(engine, [jobs[index] for index in free]), [alone[index] for index in free], "without forms")
    engine.shutdown()


def test_forced_tokens_save_steps_and_change_no_byte(
    smollm2_start: Path, jobs: list[GateRequest], alone: list[RequestOutput]
) -> None:
    """Without the shortcut every token is computed, under the same masks."""
    formed = [index for index, job in enumerate(jobs) if job.params.structured_outputs is not None]
    computing, _ = make_engine(smollm2_start, 1, forces_tokens=False)
    assert_equal(serve_all(computing, [jobs[0]]), alone[:1], "all computed")
    [person] = alone[0].outputs
    assert computing.stats().num_steps == len(person.token_ids)
    assert_equal(serve_alone(computing, [jobs[i] for i in formed[1:]]), [alone[i] for i in formed[1:]], "all computed")
    computing.shutdown()
    forcing, _ = make_engine(smollm2_start, 1)
    assert_equal(serve_all(forcing, [jobs[0]]), alone[:1], "forced")
    assert forcing.stats().num_steps < len(person.token_ids) / 2
    forcing.shutdown()
