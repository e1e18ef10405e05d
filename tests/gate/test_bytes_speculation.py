"""The bytes gate for n-gram guesses: every sampling option gives, with them, what it gives without.

That drafts which are always right, always wrong or random change nothing is shown in test_bytes_in_flight.py and
test_structured_bytes.py; here the engine makes its own, and as many as there are rows for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.gate.test_bytes_in_flight import assert_equal, make_engine
from tests.gate.test_structured_bytes import CHOICES, PERSON
from tests.gate.workload import BLOCK_SIZE, GateRequest, fingerprint, serve_all

from octavo.engine.frontend.outputs import RequestOutput
from octavo.engine.llm_engine import LLMEngine
from octavo.request import RequestOptions
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.scheduler.draft_pace import DraftPace
from octavo.structured_outputs import StructuredOutputsParams

TEXT = [657, 253, 1789, 28, 281, 253, 6130, 1743, 28, 665, 436, 253, 1165, 9045, 2057, 3365, 30]
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"logprobs": 3},
    {"temperature": 0.4},
    {"temperature": 1.3, "top_k": 20},
    {"temperature": 0.8, "top_p": 0.7, "logprobs": 0},
    {"temperature": 0.8, "min_p": 0.05, "n": 3},
    {"repetition_penalty": 1.3},
    {"presence_penalty": 0.7, "frequency_penalty": 0.4, "temperature": 0.6},
    {"frequency_penalty": -0.5, "logprobs": 2},
    {"ignore_eos": False, "min_tokens": 12, "stop_token_ids": [28, 30, 253]},
    {"ignore_eos": False, "stop_token_ids": [28, 30]},
    {"stop": [" the", " a", "e"]},
    {"stop": [", "], "include_stop_str_in_output": True, "min_tokens": 7},
    {"logit_bias": {253: 4.0, 28: -100.0}},
    {"allowed_token_ids": [*TEXT, 260, 284, 314]},
    {"bad_words": [" a", ","]},
    {"prompt_logprobs": 1, "logprobs": 1},
    {"max_tokens": 1},
    {"max_tokens": 2, "n": 2, "temperature": 0.9},
    {"structured_outputs": StructuredOutputsParams(json=PERSON)},
    {"structured_outputs": StructuredOutputsParams(choice=CHOICES), "temperature": 1.0},
    {"structured_outputs": StructuredOutputsParams(regex=r"([a-z]{2,9} ){5,}\."), "temperature": 0.7, "n": 2},
    {"structured_outputs": StructuredOutputsParams(json_object=True), "logprobs": 1, "repetition_penalty": 1.1},
    {"structured_outputs": StructuredOutputsParams(grammar='root ::= "(" root ")" | "x"'), "min_tokens": 4},
)


@pytest.fixture(scope="module")
def jobs() -> list[GateRequest]:
    """A text that says the same over and over, so that there is something to guess, for each sampling option."""
    made = []
    for index, options in enumerate(OPTIONS):
        values = {"temperature": 0.0, "max_tokens": 28, "ignore_eos": True, "seed": index, **options}
        made.append(GateRequest([*TEXT * 4, 500 + index, *TEXT[: 3 + index % 9]], SamplingParams(**values)))
    return made


@pytest.fixture(scope="module")
def plain(smollm2_start: Path, jobs: list[GateRequest]) -> list[RequestOutput]:
    engine, _ = make_engine(smollm2_start, 1)
    outputs = serve_all(engine, jobs)
    engine.shutdown()
    return outputs


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every guess is verified, whether it pays or not."""

    def count(self: DraftPace, limit: int, token_s: float, row_s: float) -> int:
        return limit

    monkeypatch.setattr(DraftPace, "count", count)
    monkeypatch.setattr("octavo.scheduler.speculation._LEAST_ROW", 0.0)
    monkeypatch.setattr("octavo.scheduler.speculation._UNKNOWN_ROW", 0.0)
    monkeypatch.setattr("octavo.scheduler.speculation._MOST_UNKNOWN", 32)
    monkeypatch.setattr("octavo.scheduler.step_time.StepTimeModel.knows_rows", False)


def guessing(model: Path, depth: int = 1, **options: Any) -> LLMEngine:
    config = {"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_min": 2}
    return make_engine(model, depth, speculative_config=config, **options)[0]


def check_counts(engine: LLMEngine, outputs: list[RequestOutput]) -> None:
    """Guesses were right and wrong, and what is counted as generated is what was delivered."""
    stats = engine.stats()
    assert 50 < sum(stats.accepted_at) < stats.num_draft_tokens
    for output in outputs:
        record = output.metrics
        assert record is not None
        assert record.num_generated_tokens == sum(len(choice.token_ids) for choice in output.outputs)
        assert record.num_accepted_tokens <= min(record.num_drafted_tokens, record.num_generated_tokens)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("depth", [1, 2])
def test_guesses_change_no_byte_of_any_option(
    smollm2_start: Path, jobs: list[GateRequest], plain: list[RequestOutput], depth: int
) -> None:
    engine = guessing(smollm2_start, depth, enable_prefix_caching=depth == 1)
    outputs = serve_all(engine, jobs)
    assert_equal(outputs, plain, f"guesses, depth {depth}")
    check_counts(engine, outputs)
    if depth == 1:  # blocks that were filled by guesses serve the next ones
        assert_equal(serve_all(engine, jobs), plain, "guesses, warm")
        assert engine.stats().prefix_hits > 0
    engine.shutdown()


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_guesses_and_preemption_change_no_byte(
    smollm2_start: Path, jobs: list[GateRequest], plain: list[RequestOutput], mode: str
) -> None:
    engine = guessing(
        smollm2_start,
        num_gpu_blocks_override=18,
        max_model_len=18 * BLOCK_SIZE,
        max_num_seqs=3,
        preemption_mode=mode,
        admission="eager",
        num_swap_blocks_override=100,
    )
    outputs = serve_all(engine, jobs, RequestOutputKind.DELTA if mode == "swap" else RequestOutputKind.FINAL_ONLY)
    assert engine.stats().num_preemptions > 0
    assert_equal(outputs, plain, f"guesses, {mode}")
    check_counts(engine, outputs)
    engine.shutdown()


@pytest.mark.usefixtures("eager")
def test_guesses_aborts_and_reconfiguring_change_no_byte(
    smollm2_start: Path, jobs: list[GateRequest], plain: list[RequestOutput]
) -> None:
    engine = guessing(smollm2_start)
    for index, job in enumerate(jobs):
        engine.add_request(str(index), job.prompt, job.params)
        engine.add_request(f"abort {index}", job.prompt, job.params)
    changes: list[dict[str, Any]] = [{"block_size": 32}, {"num_blocks": 220}, {"max_num_seqs": 9}, {"block_size": 8}]
    outputs: dict[str, RequestOutput] = {}
    num_steps = 0
    while engine.has_unfinished_requests():
        num_steps += 1
        if num_steps % 3 == 0 and changes:
            engine.reconfigure(**changes.pop(0))
        engine.abort_request([f"abort {num_steps}"])
        outputs.update({output.request_id: output for output in engine.step()})
        if num_steps == len(jobs):
            engine.abort_request([f"abort {index}" for index in range(len(jobs))])
    engine.check_integrity()
    assert not changes
    assert_equal([outputs[str(index)] for index in range(len(jobs))], plain, "guesses, aborts, reconfigured")
    engine.shutdown()


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("number", [0, 3])
def test_predictions_right_and_wrong_change_no_byte(
    smollm2_start: Path, jobs: list[GateRequest], plain: list[RequestOutput], number: int
) -> None:
    """Each request predicts the answer of itself or of another one; guesses from the text itself are off."""
    engine, _ = make_engine(smollm2_start, 1)
    free = [index for index, job in enumerate(jobs) if job.params.n == 1 and job.params.logit_bias is None]
    outputs = {}
    for index in free:
        text = plain[index if number == 0 else free[free.index(index) - number]].outputs[0].text
        engine.add_request(str(index), jobs[index].prompt, jobs[index].params, RequestOptions(prediction=text))
    while engine.has_unfinished_requests():
        outputs.update({output.request_id: output for output in engine.step() if output.finished})
    different = [index for index in free if fingerprint(outputs[str(index)]) != fingerprint(plain[index])]
    assert not different
    assert sum(engine.stats().accepted_at) > (50 if number == 0 else 0)
    engine.shutdown()


def test_at_its_own_pace_it_changes_no_byte_and_saves_steps(
    smollm2_start: Path, jobs: list[GateRequest], plain: list[RequestOutput]
) -> None:
    engine = guessing(smollm2_start)
    outputs = [serve_all(engine, [jobs[index]])[0] for index in range(9)]
    different = [index for index in range(9) if fingerprint(outputs[index]) != fingerprint(plain[index])]
    assert not different
    assert sum(engine.stats().accepted_at) > 20
    engine.shutdown()
