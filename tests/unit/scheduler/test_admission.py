"""How many blocks must be there before one more sequence may run."""

from __future__ import annotations

import pytest
from tests.unit.scheduler.checking_worker import Rig, make_sequence
from tests.unit.scheduler.test_scheduler import endless

from octavo.kvcache.manager import KVCacheManager
from octavo.scheduler.admission import AdmissionRule
from octavo.scheduler.estimator import Estimator
from octavo.scheduler.policies.registry import make_policy


def test_guaranteed_admission_never_preempts_and_still_runs_several_at_once() -> None:
    rig = Rig(num_blocks=12, block_size=8, admission="guaranteed")
    rig.add(*[endless(i, 10, max_tokens=30) for i in range(1, 7)])
    rig.finish()
    assert rig.scheduler.num_preemptions == 0
    assert max(len(plan.sequences) for plan in rig.plans) == 2


def test_optimistic_admission_runs_more_and_repairs_by_preemption() -> None:
    rig = Rig(num_blocks=12, block_size=8)
    rig.add(*[endless(i, 10, max_tokens=30) for i in range(1, 7)])
    rig.finish()
    assert rig.scheduler.num_preemptions > 0
    assert max(len(plan.sequences) for plan in rig.plans) >= 4


def test_with_history_optimistic_admission_counts_on_the_usual_length() -> None:
    estimator = Estimator()
    rule = AdmissionRule("optimistic", KVCacheManager(4, 8), estimator)
    assert rule.final_tokens(make_sequence(1, range(10), 100)) == 11, "no history: one more token"
    for length in range(1, 41):
        estimator.observe_end(make_sequence(1, [1], 100, output_token_ids=[7] * length))
    assert rule.final_tokens(make_sequence(1, range(10), 100)) == 10 + 30, "three of four are no longer"
    sequence = make_sequence(1, range(10), 100, output_token_ids=[7] * 36)
    assert rule.final_tokens(sequence) == 10 + 39


def test_a_sequence_that_was_displaced_waits_for_more_room_each_time() -> None:
    rule = AdmissionRule("optimistic", KVCacheManager(4, 8), Estimator())
    sequence = make_sequence(1, [1])
    headroom = []
    for num_displaced in (0, 1, 2, 5, 1000):
        sequence.num_displaced = num_displaced
        headroom.append(rule.headroom(sequence))
    assert headroom == [0, 1, 3, 31, 2**31 - 1]


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "fair"])
def test_thrashing_is_bounded_however_long_the_answers_are(policy: str) -> None:
    rig = Rig(num_blocks=16, block_size=8, max_num_seqs=8, policy=make_policy(policy))
    sequences = [endless(i, 4, max_tokens=110) for i in range(1, 9)]
    rig.add(*sequences)
    rig.finish()
    assert max(sequence.num_displaced for sequence in sequences) <= 5
    useful = sum(sequence.num_tokens for sequence in sequences)
    assert rig.worker.num_computed_tokens < 2 * useful
