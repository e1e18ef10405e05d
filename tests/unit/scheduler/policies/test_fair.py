"""Fair: counters, newcomers, weights, and what is charged."""

from __future__ import annotations

from tests.unit.scheduler.checking_worker import Rig, make_sequence

from octavo.scheduler.policies.fair import MAX_IDLE_TENANTS, TenantCounters
from octavo.scheduler.policies.registry import make_policy


def counters(weights: dict[str, float] | None = None, **served: int) -> TenantCounters:
    lanes = TenantCounters(weights or {})
    for tenant, num_output in served.items():
        lanes.opens(tenant, [])
        lanes.served(make_sequence(1, [1], tenant=tenant), num_output)
    return lanes


def test_an_output_token_costs_two_divided_by_the_weight() -> None:
    lanes = counters({"a": 4.0}, a=10, b=10)
    assert (lanes.key("a"), lanes.key("b")) == (5.0, 20.0)


def test_a_newcomer_starts_at_the_active_minimum_and_keeps_its_debts() -> None:
    lanes = counters(a=10, b=30)
    lanes.opens("new", ["a", "b"])
    assert lanes.key("new") == 20.0, "it is owed nothing for the time before it came"
    lanes.opens("b", ["a"])
    assert lanes.key("b") == 60.0, "who was given more than the others before it left is not forgiven"


def test_the_first_to_wait_again_starts_where_the_last_one_left() -> None:
    lanes = counters(a=10)
    lanes.closes("a")
    lanes.opens("new", [])
    assert lanes.key("new") == 20.0


def test_a_prompt_is_charged_once_and_its_cached_part_never() -> None:
    lanes = counters()
    sequence = make_sequence(1, range(100), tenant="a")
    sequence.num_computed = 40
    lanes.admitted(sequence, 1.0)
    sequence.num_computed = 70
    lanes.served(sequence, 0)
    sequence.num_computed = 0  # preempted
    lanes.admitted(sequence, 2.0)
    sequence.num_computed = 70
    lanes.served(sequence, 0)
    assert lanes.key("a") == 30.0
    sequence.num_computed = 100
    lanes.served(sequence, 1)
    assert lanes.key("a") == 62.0


def test_admitted_prompts_count_as_given_when_the_next_one_is_admitted() -> None:
    rig = Rig(max_num_batched_tokens=16, chunked_prefill_size=8, policy=make_policy("fair"))
    rig.add(*[make_sequence(i, [i] * 40, 1, tenant="a", arrival_s=0.0) for i in (1, 2, 3)])
    rig.add(*[make_sequence(i, [i] * 40, 1, tenant="b", arrival_s=1.0) for i in (4, 5)])
    plan = rig.schedule()
    assert [share.seq_id for share in plan.sequences] == [1, 4], "not 1 and 2: of a, 40 tokens are promised already"
    rig.settle(plan)
    rig.finish()


def test_a_short_request_passes_a_long_prompt_between_two_of_its_chunks() -> None:
    rig = Rig(max_num_batched_tokens=16, chunked_prefill_size=16, policy=make_policy("fair"))
    rig.add(make_sequence(1, [1] * 300, 1, tenant="greedy"), make_sequence(2, [2] * 300, 1, tenant="greedy"))
    for _ in range(3):
        rig.step()
    rig.add(make_sequence(3, [3] * 14, 1, tenant="light", arrival_s=4.0))
    steps = []
    for _ in range(2):
        plan = rig.schedule()
        steps.append([share.seq_id for share in plan.sequences])
        rig.settle(plan)
    assert 3 in steps[0] + steps[1]
    rig.finish()


def test_invented_tenants_do_not_fill_the_memory() -> None:
    lanes = TenantCounters({})
    for number in range(MAX_IDLE_TENANTS + 500):
        lanes.opens(f"t{number}", [])
        lanes.closes(f"t{number}")
    assert len(lanes._counters) <= MAX_IDLE_TENANTS + 1
