"""Shortest job first: what is short, and who gives way."""

from __future__ import annotations

from typing import Any

from tests.unit.scheduler.checking_worker import Rig, make_sequence
from tests.unit.scheduler.test_scheduler import endless

from octavo.scheduler.estimator import Estimator
from octavo.scheduler.order import Order
from octavo.scheduler.policies.registry import make_policy


def sjf_rig(**options: Any) -> Rig:
    estimator = Estimator()
    return Rig(num_blocks=256, policy=make_policy("sjf", estimator), estimator=estimator, **options)


def first_seen(rig: Rig) -> list[int]:
    """seq_ids in the order of their first step, once all has been run."""
    seen: list[int] = []
    while rig.scheduler.has_work():
        plan = rig.schedule()
        seen += [share.seq_id for share in plan.sequences if share.seq_id not in seen]
        rig.settle(plan)
    return seen


def test_short_prompts_and_short_limits_go_first() -> None:
    rig = sjf_rig(max_num_seqs=1)
    rig.add(endless(1, 500, max_tokens=20), endless(2, 10, max_tokens=20), endless(3, 10, max_tokens=5))
    assert first_seen(rig) == [3, 2, 1]


def test_a_tenant_known_for_short_answers_goes_first() -> None:
    rig = sjf_rig(max_num_seqs=1)
    for tenant, length in (("brief", 5), ("wordy", 200)):
        for _ in range(20):
            rig.scheduler.estimator.observe_end(make_sequence(0, [1], 500, tenant=tenant, output_token_ids=[1] * length))
    rig.add(endless(1, 10, max_tokens=500, tenant="wordy"), endless(2, 10, max_tokens=500, tenant="brief"))
    plan = rig.schedule()
    assert [share.seq_id for share in plan.sequences] == [2]
    rig.settle(plan)
    rig.finish()


def test_what_is_in_the_prefix_cache_makes_a_job_short() -> None:
    rig = sjf_rig(max_num_seqs=1)
    rig.add(endless(9, 400, max_tokens=1))
    rig.finish()
    rig.add(endless(1, 100, max_tokens=4), make_sequence(2, [9000 + i for i in range(400)], 4, stop_token_ids=[]))
    assert first_seen(rig) == [2, 1]


def test_a_short_job_passes_a_long_prompt_between_two_of_its_chunks() -> None:
    rig = sjf_rig(max_num_batched_tokens=32, chunked_prefill_size=32)
    rig.add(endless(1, 900, max_tokens=4))
    rig.step()
    rig.add(endless(2, 20, max_tokens=4))
    plan = rig.schedule()
    assert [(share.seq_id, share.num_new) for share in plan.sequences] == [(2, 20), (1, 12)]
    rig.settle(plan)
    rig.finish()


def test_the_one_with_most_left_gives_way() -> None:
    estimator = Estimator()
    order = Order(make_policy("sjf", estimator), 60.0)
    rig = sjf_rig()
    nearly_done, fresh = endless(1, 5, max_tokens=9), endless(2, 5, max_tokens=9)
    rig.add(nearly_done)
    for _ in range(7):
        rig.step()
    rig.add(fresh)
    rig.step()
    assert order.victim([nearly_done, fresh], 3.0) is fresh
    rig.finish()
