"""The worker on the reference backend: same bytes in any company, and one sequence's fault is its own."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import numpy as np
import pytest
from tests.tiny_models import prompt
from tests.worker_driver import Driver, Outcome, Request, make_worker, run_step, tiny_checkpoint

from octavo.loader.checkpoint import Checkpoint
from octavo.ops.arrays import F32
from octavo.ops.interface import StepInputs
from octavo.ops.sample_rows import SampleResult, SampleRows
from octavo.sampling_params import SamplingParams
from octavo.step import SampledTokens, ScheduledSequence, ShareKind, StepPlan
from octavo.worker.model_runner import accept, row_id
from octavo.worker.worker import Worker

NUM_TOKENS = 12


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return tiny_checkpoint(tmp_path_factory.mktemp("model"), "llama-gqa")


def mixed_requests() -> list[Request]:
    """Greedy, sampled, penalised, with logprobs and prompt logprobs; lengths around multiples of the block size."""
    sampling = [
        SamplingParams(temperature=0.0, logprobs=3),
        SamplingParams(temperature=0.9, top_p=0.9, logprobs=0),
        SamplingParams(
            temperature=1.2, top_k=20, min_p=0.02, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.3
        ),
        SamplingParams(temperature=0.7, prompt_logprobs=2, logprobs=5),
        SamplingParams(temperature=0.0, logit_bias={5: 3.0, 9: -100.0}, min_tokens=6),
    ]
    lengths = [1, 15, 16, 90, 17]
    return [
        Request(prompt("worker", length), params, seed=index * 7919 - 5, choice=index % 2, stop_token_ids=[2, 5])
        for index, (length, params) in enumerate(zip(lengths, sampling, strict=True))
    ]


@pytest.fixture(scope="module")
def alone(checkpoint: Checkpoint) -> list[tuple[object, ...]]:
    """Outcome of every mixed request on a worker of its own."""
    return [Driver(make_worker(checkpoint), [request]).run(NUM_TOKENS)[0] for request in mixed_requests()]


def test_prompt_logprobs_are_there_and_cover_all_prompt_tokens_but_the_first(alone: list[tuple[object, ...]]) -> None:
    entries = alone[3][2]
    assert isinstance(entries, dict)
    assert sorted(entries) == list(range(1, 90))
    ids = prompt("worker", 90)
    for position, entry in entries.items():
        assert entry.token_id == ids[position]
        assert len(entry.top_ids) == len(entry.top_logprobs) == 2
        assert entry.logprob <= entry.top_logprobs[0]


@pytest.mark.parametrize("chunk", [256, 7])
def test_requests_give_the_same_bytes_together_as_alone(
    checkpoint: Checkpoint, alone: list[tuple[object, ...]], chunk: int
) -> None:
    assert Driver(make_worker(checkpoint), mixed_requests()).run(NUM_TOKENS, chunk) == alone


def test_a_preempted_sequence_continues_with_the_same_bytes(checkpoint: Checkpoint, alone: list[tuple[object, ...]]) -> None:
    driver = Driver(make_worker(checkpoint), mixed_requests())
    driver.run(5)
    driver.preempt(1)
    driver.preempt(3)
    driver.step([driver.scheduled(seq_id) for seq_id in (0, 2, 4)])
    assert driver.run(NUM_TOKENS, chunk=9) == alone


def test_stop_tokens_are_masked_until_min_tokens(checkpoint: Checkpoint) -> None:
    bias = SamplingParams(temperature=0.0, logit_bias={2: 100.0}, min_tokens=4)
    request = Request(prompt("worker", 9), bias, stop_token_ids=[2])
    Driver(make_worker(checkpoint), [request]).run(6)
    assert 2 not in request.tokens[:4]
    assert request.tokens[4:] == [2, 2]


def test_more_sequences_than_expected_make_the_batch_grow(checkpoint: Checkpoint) -> None:
    worker = make_worker(checkpoint, max_num_seqs=4)
    requests = [Request(prompt("worker", 5 + index), SamplingParams(temperature=0.0)) for index in range(11)]
    driver = Driver(worker, requests)
    for first in (0, 4, 8):
        driver.step([driver.scheduled(seq_id) for seq_id in range(first, min(first + 4, 11))])
    assert len(worker.batch) == 11
    expected = Request(prompt("worker", 15), SamplingParams(temperature=0.0))
    Driver(make_worker(checkpoint), [expected]).run(1)
    assert requests[10].tokens == expected.tokens
    run_step(worker, StepPlan(9, [], [], list(range(11))))
    assert len(worker.batch) == 0


def test_copied_and_replaced_blocks_continue_a_sequence(checkpoint: Checkpoint) -> None:
    """Copy on write: the second block of the sequence becomes a copy; its old place is overwritten afterwards."""
    expected = Request(prompt("worker", 12), SamplingParams(temperature=0.0))
    Driver(make_worker(checkpoint), [expected]).run(4)
    request = Request(prompt("worker", 12), SamplingParams(temperature=0.0))
    other = Request(prompt("worker", 7), SamplingParams(temperature=0.9))
    driver = Driver(make_worker(checkpoint), [request, other])
    first = driver.scheduled(0)
    driver.step([first])
    share = driver.scheduled(0)
    share.replaced_blocks = [(1, 100)]
    result = run_step(driver.worker, StepPlan(2, [share], block_copies=[(first.new_block_ids[1], 100)]))
    assert not result.failed
    request.tokens.append(result.sampled[0].token_ids[0])
    intruder = driver.scheduled(1)
    intruder.new_block_ids = [first.new_block_ids[1]]
    driver.step([intruder])
    while len(request.tokens) < 4:
        driver.step([driver.scheduled(0)])
    assert request.tokens == expected.tokens


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"num_new": 50}, "positions 0 to 50 were scheduled"),
        ({"num_new": 0}, "were scheduled"),
        ({"new_block_ids": []}, "blocks cover 0"),
        ({"new_block_ids": [5, 4000]}, "block ids reach from 5 to 4000"),
        ({"new": None}, "never introduced"),
        ({"replaced_blocks": [(99, 3)]}, "block 99 was replaced"),
    ],
)
def test_a_sequence_with_a_contradictory_plan_fails_alone(
    checkpoint: Checkpoint, change: dict[str, object], reason: str
) -> None:
    worker = make_worker(checkpoint)
    good, bad = (Request(prompt("worker", 10), SamplingParams(temperature=0.0)) for _ in range(2))
    driver = Driver(worker, [good, bad])
    shares = [driver.scheduled(0), driver.scheduled(1)]
    for name, value in change.items():
        setattr(shares[1], name, value)
    result = driver.step(shares)
    assert list(result.failed) == [1]
    assert reason in result.failed[1]
    assert len(good.tokens) == 1
    assert not bad.tokens
    assert 1 not in worker.batch


@pytest.mark.parametrize("token_ids", [[], [3, 256], [-1], [3] * 201])
def test_token_ids_that_cannot_be_fail_alone(checkpoint: Checkpoint, token_ids: list[int]) -> None:
    worker = make_worker(checkpoint)
    driver = Driver(worker, [Request([3, 4], SamplingParams(temperature=0.0)), Request([3], SamplingParams())])
    bad = driver.scheduled(1)
    assert bad.new is not None
    bad.new.token_ids = token_ids
    result = driver.step([bad, driver.scheduled(0)])
    assert list(result.failed) == [1]
    assert [token.seq_id for token in result.sampled] == [0]
    assert len(worker.batch) == 1


class PickyBackend:
    """A backend whose sampler raises when a certain seed is in the batch, and whose logprobs always do."""

    def __init__(self, worker: Worker, bad_seed: int) -> None:
        self._backend = worker.backend
        self._bad_seed = bad_seed

    def sample(self, logits: F32, rows: SampleRows) -> SampleResult:
        if (rows.seed == self._bad_seed).any():
            raise RuntimeError("no such seed")
        return self._backend.sample(logits, rows)

    def logprobs(self, *args: object) -> SampleResult:
        raise RuntimeError("no logprobs today")


def test_a_fault_while_sampling_ends_the_sequence_that_caused_it(checkpoint: Checkpoint) -> None:
    worker = make_worker(checkpoint)
    worker._runner._sampler._backend = PickyBackend(worker, 13)  # type: ignore[assignment]
    requests = [Request(prompt("worker", 6 + seed), SamplingParams(), seed=seed) for seed in (12, 13, 14)]
    driver = Driver(worker, requests)
    result = driver.step([driver.scheduled(seq_id) for seq_id in range(3)])
    assert result.failed == {1: "sampling failed: no such seed"}
    expected = [Request(prompt("worker", 6 + seed), SamplingParams(), seed=seed) for seed in (12, 14)]
    Driver(make_worker(checkpoint), expected).run(1)
    assert [request.tokens for request in requests] == [expected[0].tokens, [], expected[1].tokens]


def test_a_fault_in_prompt_logprobs_ends_the_sequence_that_caused_it(checkpoint: Checkpoint) -> None:
    worker = make_worker(checkpoint)
    worker._runner._sampler._backend = PickyBackend(worker, 13)  # type: ignore[assignment]
    requests = [
        Request(prompt("worker", 100), SamplingParams(prompt_logprobs=1)),
        Request(prompt("worker", 8), SamplingParams()),
    ]
    driver = Driver(worker, requests)
    result = driver.step([driver.scheduled(seq_id) for seq_id in range(2)])
    assert result.failed == {0: "prompt logprobs failed: no logprobs today"}
    assert [token.seq_id for token in result.sampled] == [1]


def test_logits_that_are_not_finite_end_the_sequence(checkpoint: Checkpoint) -> None:
    worker = make_worker(checkpoint)
    requests = [Request(prompt("worker", 6), SamplingParams(temperature=0.0)), Request(prompt("worker", 8), SamplingParams())]
    driver = Driver(worker, requests)
    driver.step([driver.scheduled(seq_id) for seq_id in range(2)])
    cache = worker.backend._ops.cache  # type: ignore[attr-defined]
    share = ScheduledSequence(1, ShareKind.PREFILL, 0, 1, [], False)
    block = driver.worker.batch.block_tables[driver.worker.batch.update(share).row, 0]
    cache._values[:, block] = np.nan
    result = driver.step([driver.scheduled(seq_id) for seq_id in range(2)])
    assert result.failed == {1: "the model's logits are not finite"}
    assert len(requests[0].tokens) == 2


def test_an_empty_plan_gives_an_empty_result(checkpoint: Checkpoint) -> None:
    result = run_step(make_worker(checkpoint), StepPlan(4, [], removed=[77]))
    assert (result.step_id, result.sampled, result.prompt_logprobs, result.failed) == (4, [], [], {})


@pytest.mark.parametrize("name", ["mistral-window", "gemma3"])
def test_sliding_layers_give_the_same_bytes_in_chunks(name: str, tmp_path: Path) -> None:
    sliding = tiny_checkpoint(tmp_path, name)
    outcomes = [
        Driver(make_worker(sliding), [Request(prompt("worker", 30), SamplingParams(temperature=0.0, logprobs=2))]).run(8, chunk)
        for chunk in (256, 5)
    ]
    assert outcomes[0] == outcomes[1]


def without_drafts(checkpoint: Checkpoint, device: str = "reference") -> list[Outcome]:
    """What requests of every kind give without drafts."""
    return Driver(make_worker(checkpoint, device), drafted_requests()).run(12)


def drafted_requests() -> list[Request]:
    return [
        Request(prompt("worker", 6), SamplingParams(temperature=0.0, logprobs=2)),
        Request(prompt("worker", 9), SamplingParams(temperature=0.9, top_k=20), seed=3),
        Request(prompt("worker", 17), SamplingParams(temperature=0.7, top_p=0.9, repetition_penalty=1.3, presence_penalty=0.4)),
        Request(prompt("worker", 8), SamplingParams(temperature=0.8, min_tokens=7, logit_bias={5: 2.0}), stop_token_ids=[5, 6]),
    ]


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("kind", ["right", "wrong", "random", "beyond the answer"])
def test_drafts_do_not_change_a_byte(checkpoint: Checkpoint, kind: str, device: str) -> None:
    expected = without_drafts(checkpoint, device=device)
    answers = {tuple(request.prompt): tokens for request, (tokens, _, _) in zip(drafted_requests(), expected, strict=True)}

    def guess(request: Request) -> list[int]:
        answer, done = answers[tuple(request.prompt)], len(request.tokens)
        right = answer[done : done + 4]
        wrong = [(token + 1) % 60 for token in right]
        mixed = [right[i] if (done + i) % 3 else wrong[i] for i in range(len(right))]
        return {"right": right, "wrong": wrong, "random": mixed, "beyond the answer": [*right, 1, 2, 3]}[kind]

    driver = Driver(make_worker(checkpoint, device), drafted_requests(), guess)
    assert driver.run(12) == expected
    num_accepted = sum(request.num_accepted for request in driver.requests)
    assert (num_accepted > 0) == (kind != "wrong") and driver.num_steps < (13 if kind == "wrong" else 12)


def test_a_draft_whose_logits_are_not_finite_counts_only_if_those_before_it_are_right(checkpoint: Checkpoint) -> None:
    sampled = {7: SampledTokens(7, [3]), row_id(7, 1): SampledTokens(7, [4])}
    failed = {row_id(7, 2): "not finite"}
    accept(7, [3, 9], sampled, failed)
    assert not failed and (sampled[7].token_ids, sampled[7].num_accepted) == ([3, 4], 1)
    sampled = {7: SampledTokens(7, [3]), row_id(7, 1): SampledTokens(7, [9])}
    failed = {row_id(7, 2): "not finite"}
    accept(7, [3, 9], sampled, failed)
    assert failed == {7: "not finite"} and sampled == {}


def test_tokens_that_others_chose_are_computed_together(checkpoint: Checkpoint) -> None:
    """As a grammar forces them, or as another rank sampled them: the worker is told, and goes on behind them."""
    (expected,) = Driver(make_worker(checkpoint), drafted_requests()[:1]).run(12)
    request = drafted_requests()[0]
    driver = Driver(make_worker(checkpoint), [request])
    driver.step([driver.scheduled(0)])
    request.tokens += expected[0][1:5]
    while len(request.tokens) < 12:
        driver.step([driver.scheduled(0)])
    assert request.tokens == expected[0]


@pytest.mark.parametrize("overlap", [False, True])
def test_plans_behind_one_another_give_the_same_bytes(checkpoint: Checkpoint, overlap: bool) -> None:
    """Two groups of requests in alternation, two plans in flight all the time."""
    expected = without_drafts(checkpoint)
    requests = drafted_requests()
    driver = Driver(make_worker(checkpoint, overlap=overlap), requests)
    plans: deque[StepPlan] = deque()
    for step in range(24):
        ids = [0, 1] if step % 2 else [2, 3]
        plans.append(StepPlan(step, [driver.scheduled(seq_id) for seq_id in ids]))
        driver.worker.start(plans[-1])
        if len(plans) == 2:
            assert driver.take(driver.worker.finish()).step_id == plans.popleft().step_id
    driver.take(driver.worker.finish())
    assert driver.outcomes() == expected


@pytest.mark.parametrize("overlap", [False, True])
def test_a_step_that_raises_takes_those_behind_it_along_undone(checkpoint: Checkpoint, overlap: bool) -> None:
    requests = drafted_requests()[:2]
    driver = Driver(make_worker(checkpoint, overlap=overlap), requests)
    shares = [driver.scheduled(0), driver.scheduled(1)]
    program = driver.worker._runner._program
    driver.worker._runner._program = BrokenProgram()  # type: ignore[assignment]
    driver.worker.start(StepPlan(1, [shares[0]]))
    driver.worker.start(StepPlan(2, [shares[1]]))
    with pytest.raises(FloatingPointError, match="no device"):
        driver.worker.finish()
    driver.worker._runner._program = program
    assert 1 not in driver.worker.batch, "the second plan has been begun"
    for step, share in enumerate(shares, 3):
        result = run_step(driver.worker, StepPlan(step, [share], removed=[share.seq_id]))
        assert not result.failed and len(result.sampled) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"draft_token_ids": [1], "num_new": 7, "needs_sample": False}, "without a sample"),
        ({"draft_token_ids": [1] * 6, "num_computed": 6}, "without the token before them"),
        ({"draft_token_ids": [10**6], "num_new": 7}, "were scheduled, vocab_size"),
        ({"draft_token_ids": [1] * 65, "num_new": 71}, "65 drafts"),
        ({"token_ids": [1] * 200}, "do not fit max_model_len"),
        ({"num_new": 5}, "a sample was asked for"),
    ],
)
def test_drafts_and_tokens_that_cannot_be_fail_alone(checkpoint: Checkpoint, change: dict[str, object], reason: str) -> None:
    driver = Driver(make_worker(checkpoint), [Request(prompt("worker", 6), SamplingParams()) for _ in range(2)])
    shares = [driver.scheduled(0), driver.scheduled(1)]
    for name, value in change.items():
        setattr(shares[0], name, value)
    result = driver.step(shares)
    assert list(result.failed) == [0] and reason in result.failed[0]
    assert [sampled.seq_id for sampled in result.sampled] == [1]


class BrokenProgram:
    def run(self, inputs: StepInputs) -> None:
        raise FloatingPointError("no device")
