"""Speculation in the scheduler, on a machine whose steps take what a formula says: when it guesses, and what that costs."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from tests.fakes import make_sequence

from octavo.config.resolved import ResolvedSchedulerConfig
from octavo.kvcache.manager import KVCacheManager
from octavo.sampling_params import SamplingParams
from octavo.scheduler.policies.registry import make_policy
from octavo.scheduler.scheduler import Scheduler
from octavo.scheduler.step_time import StepShape
from octavo.sequence import Sequence
from octavo.step import SampledTokens, ScheduledSequence, StepPlan, StepResult

NGRAM = '{"method": "ngram", "num_speculative_tokens": 8}'
RNG = random.Random(11)
ORIGINAL = [RNG.randrange(100, 40_000) for _ in range(200)]


@dataclass
class Machine:
    """A scheduler, and a worker that knows each answer and takes base_s + row_s per row + prefill_s per prompt token."""

    answers: dict[int, list[int]]
    speculative_config: str | None = NGRAM
    base_s: float = 1.9e-3
    row_s: float = 0.45e-3
    prefill_s: float = 0.1e-3
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 96
    now_s: float = 0.0
    plans: list[StepPlan] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = ResolvedSchedulerConfig(
            max_model_len=4096,
            speculative_config=self.speculative_config,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
        )
        self.scheduler = Scheduler(config, KVCacheManager(512, 16, False), make_policy("fcfs"))
        self._live: dict[int, Sequence] = {}

    def add(self, sequence: Sequence) -> None:
        self._live[sequence.seq_id] = sequence
        self.scheduler.add(sequence)

    def step(self) -> StepPlan:
        plan = self.scheduler.schedule(self.now_s)
        assert plan is not None
        self.plans.append(plan)
        shape = StepShape.of(plan)
        self.now_s += self.base_s + self.row_s * shape.num_decodes + self.prefill_s * shape.prefill_tokens
        sampled = [self._sampled(share) for share in plan.sequences if share.needs_sample]
        self.scheduler.settle(plan, StepResult(plan.step_id, sampled), self.now_s)
        return plan

    def finish(self) -> float:
        """Seconds from now to the last token; all answers are right then."""
        start_s = self.now_s
        while self.scheduler.has_work():
            self.step()
        self.scheduler.check_integrity()
        for seq_id, sequence in self._live.items():
            assert sequence.output_token_ids == self.answers[seq_id][: sequence.request.max_tokens]
        return self.now_s - start_s

    def _sampled(self, share: ScheduledSequence) -> SampledTokens:
        done = len(self._live[share.seq_id].output_token_ids)
        coming = self.answers[share.seq_id][done:]
        right = 0
        while right < len(share.draft_token_ids) and share.draft_token_ids[right] == coming[right]:
            right += 1
        return SampledTokens(share.seq_id, coming[: right + 1], num_accepted=right)


def serve(answers: list[list[int]], config: str | None = NGRAM, *, prompt: list[int] = ORIGINAL, **machine: float) -> Machine:
    served = Machine(dict(enumerate(answers)), config, **machine)  # type: ignore[arg-type]
    for seq_id, answer in enumerate(answers):
        served.add(make_sequence(seq_id, prompt, max_tokens=len(answer)))
    served.finish()
    return served


def corrected(every: int) -> list[int]:
    """The original, with a token changed now and then."""
    return [token + (index % every == every - 1) for index, token in enumerate(ORIGINAL)]


def a_story(seed: int, kinds: int = 40, count: int = 200) -> list[int]:
    """Short turns of phrase come again, but go on in another way each time."""
    rng, story = random.Random(seed), list[int]()
    while len(story) < count:
        phrase = rng.randrange(kinds)
        story += [phrase, phrase + 1000, phrase + 2000, rng.randrange(10_000, 40_000)]
    return story[:count]


def test_a_copied_text_takes_a_third_of_the_time() -> None:
    plain, guessed = serve([corrected(25)], None), serve([corrected(25)])
    assert guessed.now_s < plain.now_s / 2.0
    stats = guessed.scheduler.speculation.stats
    assert stats.num_accepted_tokens > 140 and stats.num_accepted_tokens == sum(stats.accepted_at)
    assert stats.accepted_at == sorted(stats.accepted_at, reverse=True)
    assert plain.scheduler.speculation.stats.num_drafts == 0


@pytest.mark.parametrize(("clients", "seed"), [(1, 1), (1, 2), (4, 3), (16, 4)])
def test_a_text_that_repeats_nothing_of_use_costs_less_than_two_hundredths(seed: int, clients: int) -> None:
    stories = [a_story(100 * seed + client) for client in range(clients)]
    plain, guessed = serve(stories, None), serve(stories)
    assert guessed.now_s <= 1.02 * plain.now_s


@pytest.mark.parametrize("base_s", [0.0, 0.2e-3, 1.9e-3, 20e-3])
@pytest.mark.parametrize("clients", [1, 6])
def test_it_never_loses_whatever_a_row_costs(base_s: float, clients: int) -> None:
    """From a machine where a row is all that a step costs to one where rows are nearly free."""
    for answers in ([corrected(10 + client) for client in range(clients)], [a_story(client) for client in range(clients)]):
        plain, guessed = serve(answers, None, base_s=base_s), serve(answers, base_s=base_s)
        assert guessed.now_s <= 1.02 * plain.now_s


def test_where_rows_are_cheap_it_pays_with_many_clients_too() -> None:
    answers = [corrected(20 + client) for client in range(16)]
    assert serve(answers, base_s=20e-3).now_s < 0.75 * serve(answers, None, base_s=20e-3).now_s


def test_nothing_is_guessed_in_a_step_that_a_prompt_could_fill() -> None:
    machine = Machine({0: ORIGINAL, 1: ORIGINAL})
    machine.add(make_sequence(0, ORIGINAL, max_tokens=100))
    while not any(share.draft_token_ids for share in machine.step().sequences):
        pass
    machine.add(make_sequence(1, list(range(50_000, 50_300)), max_tokens=5))
    plans = [machine.step() for _ in range(3)]
    assert not any(share.draft_token_ids for plan in plans for share in plan.sequences)
    while not any(share.draft_token_ids for share in machine.step().sequences):
        pass
    machine.finish()


def test_guesses_take_no_place_from_a_sequence_that_decodes() -> None:
    answers = dict.fromkeys(range(6), ORIGINAL)
    machine = Machine(answers, base_s=50e-3, max_num_seqs=6, max_num_batched_tokens=9)
    for seq_id in answers:
        machine.add(make_sequence(seq_id, ORIGINAL, max_tokens=150 + seq_id))
    num_drafted = 0
    while machine.scheduler.has_work():
        num_running, plan = machine.scheduler.num_running, machine.step()
        assert plan.num_tokens <= 9
        if any(share.draft_token_ids for share in plan.sequences):
            num_drafted += 1
            assert len(plan.sequences) == num_running
    assert num_drafted > 5


@pytest.mark.parametrize(
    ("config", "asked", "most"),
    [
        (NGRAM, None, 8),
        (NGRAM, 0, 0),
        (NGRAM, 3, 3),
        (NGRAM, 20, 20),
        (None, None, 0),
        (None, 0, 0),
        (None, 5, 5),
        ('{"method": "ngram", "num_speculative_tokens": 2}', None, 2),
        ('{"method": "ngram", "disable_by_batch_size": 1}', None, 0),
    ],
)
def test_the_request_says_how_many_or_the_server_does(config: str | None, asked: int | None, most: int) -> None:
    machine = Machine({0: ORIGINAL}, config)
    sampling = SamplingParams(max_tokens=200, num_speculative_tokens=asked)
    machine.add(make_sequence(0, ORIGINAL, max_tokens=200, sampling=sampling))
    machine.finish()
    assert max(len(share.draft_token_ids) for plan in machine.plans for share in plan.sequences) == most


def test_a_request_that_predicts_its_answer_is_guessed_without_any_option() -> None:
    machine = Machine({0: ORIGINAL}, None)
    machine.add(make_sequence(0, [1, 2, 3], max_tokens=200, predicted_token_ids=corrected(50)))
    machine.finish()
    assert machine.scheduler.speculation.stats.num_accepted_tokens > 120


def test_what_has_ended_is_forgotten() -> None:
    machine = serve([ORIGINAL, a_story(1)])
    assert not machine.scheduler.speculation._live
    machine.add(make_sequence(5, ORIGINAL, max_tokens=200))
    machine.answers[5] = ORIGINAL
    for _ in range(12):
        machine.step()
    assert machine.scheduler.speculation._live
    machine.scheduler.abort(5)
    assert not machine.scheduler.speculation._live

