"""What all running sequences are counted with is the sum of what the rule says of each."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from tests.fakes import make_sequence

from octavo.config.cache import blocks_for
from octavo.kvcache.manager import KVCacheManager
from octavo.scheduler.admission import AdmissionRule
from octavo.scheduler.estimator import Estimator
from octavo.sequence import Sequence
from octavo.simulator.expected_growth import NO_DECODE, ExpectedGrowth

SIZE = 8


@dataclass
class Request:
    sequence: Sequence
    num_prompt: int
    origin: int = NO_DECODE


def sequence(seq_id: int, max_tokens: int, num_prompt: int = 0) -> Sequence:
    return make_sequence(seq_id, [0] * num_prompt, max_tokens)


@pytest.mark.parametrize("admission", ["optimistic", "guaranteed"])
@pytest.mark.parametrize("seed", range(6))
def test_the_total_is_the_sum_over_all_running(admission: str, seed: int) -> None:
    rng = random.Random(seed)
    growth, estimator = ExpectedGrowth(admission, SIZE), Estimator()
    rule = AdmissionRule(admission, KVCacheManager(1, SIZE), estimator)
    running: list[tuple[Request, Sequence]] = []
    for step in range(400):
        for request, twin in list(running):
            if request.origin == NO_DECODE:
                if rng.random() < 0.5:
                    request.origin = step
                    growth.enter(request, 0, step)
                continue
            twin.output_token_ids.append(0)
            if len(twin.output_token_ids) == twin.request.max_tokens:
                running.remove((request, twin))
                growth.end(request, twin.request.max_tokens)
                estimator.observe_end(twin)
        if rng.random() < 0.3:
            max_tokens, num_prompt = rng.randint(2, 60), rng.randint(1, 50)
            request, twin = Request(sequence(step, max_tokens), num_prompt), sequence(step, max_tokens, num_prompt)
            growth.enter(request, 0, NO_DECODE)
            running.append((request, twin))
        now = step + 1
        decoding = [(request, twin) for request, twin in running if request.origin != NO_DECODE]
        assert all(now - request.origin == len(twin.output_token_ids) + 1 for request, twin in decoding)
        if rng.random() < 0.7:
            expected = sum(blocks_for(rule.final_tokens(twin), SIZE) for _, twin in running)
            assert growth.total(step) == expected
