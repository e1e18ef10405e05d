"""What every policy promises, over random arrivals: nobody starves, budgets hold, and each order is the one it says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.scheduler.checking_worker import make_sequence
from tests.unit.scheduler.policies.virtual_engine import BLOCK_SIZE, VirtualEngine, step_seconds

from octavo.sampling_params import SamplingParams
from octavo.scheduler.policies.fair import OUTPUT_WEIGHT, PROMPT_WEIGHT
from octavo.sequence import Sequence
from octavo.step import StepPlan

TENANTS = "abc"
MAX_PROMPT, MAX_OUTPUT = 200, 40


def sequences(draws: list[tuple[float, int, int, int, str]]) -> list[Sequence]:
    return [
        make_sequence(seq_id, [seq_id] * prompt, output, arrival_s=at, priority=priority, tenant=tenant, stop_token_ids=[])
        for seq_id, (at, prompt, output, priority, tenant) in enumerate(draws)
    ]


ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 60).map(lambda at: at / 20),
        st.integers(1, MAX_PROMPT),
        st.integers(1, MAX_OUTPUT),
        st.integers(-2, 2),
        st.sampled_from(TENANTS),
    ),
    min_size=12,
    max_size=40,
).map(sequences)


def _backlogs(loads: list[tuple[int, int, int, int]]) -> list[Sequence]:
    """Per tenant (requests, prompt, output, start in tenths of a second): enough of the same to keep it waiting for long."""
    return sequences(
        [
            (start / 10, prompt, output, 0, tenant)
            for tenant, (count, prompt, output, start) in zip(TENANTS, loads, strict=True)
            for _ in range(count)
        ]
    )


BACKLOGS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, MAX_PROMPT), st.integers(1, MAX_OUTPUT), st.integers(0, 20)),
    min_size=len(TENANTS),
    max_size=len(TENANTS),
).map(_backlogs)

ORDERS = st.sampled_from(["fcfs", "sjf", "priority"])
MACHINES = st.fixed_dictionaries(
    {
        "max_num_seqs": st.integers(1, 8),
        "max_num_batched_tokens": st.sampled_from([16, 64, 256]),
        "chunked_prefill_size": st.sampled_from([16, 64]),
        "num_blocks": st.sampled_from([16, 40, 4096]),
        "max_wait": st.sampled_from([0.05, 0.5, 2.0]),
        "admission": st.sampled_from(["optimistic", "guaranteed"]),
    }
)


def wide(first_id: int, n: int, prompt: int, output: int, **fields: Any) -> list[Sequence]:
    """The n choices of one request."""
    params = SamplingParams(n=n)
    first = make_sequence(first_id, [first_id] * prompt, output, sampling=params, stop_token_ids=[], **fields)
    return [first, *(Sequence(first_id + choice, first.request, choice, first_id) for choice in range(1, n))]


def check_budgets(engine: VirtualEngine, plan: StepPlan) -> None:
    config = engine.config
    assert plan.num_tokens <= config.max_num_batched_tokens and len(plan.sequences) <= config.max_num_seqs
    assert all(1 <= share.num_new <= config.chunked_prefill_size for share in plan.sequences)


@settings(max_examples=60, deadline=None)
@given(ORDERS, MACHINES, ARRIVALS)
def test_nobody_is_overtaken_once_overdue_and_everybody_is_served_within_the_bound(
    policy: str, machine: dict[str, Any], arrivals: list[Sequence]
) -> None:
    """The bound: max_wait, then at most what those that ran and those that came before it need alone, a token per step."""
    engine = VirtualEngine(policy, **machine)
    max_wait, bounds = engine.config.max_wait, dict[int, int]()
    engine._pending = sorted(arrivals, key=lambda sequence: sequence.request.arrival_s, reverse=True)
    while engine._pending or engine.scheduler.has_work():
        overdue = [s for s in engine.waiting.values() if s.request.arrival_s <= engine.now - max_wait]
        running = engine.scheduler.num_running
        live = [served.sequence for served in engine.served.values() if served.sequence.finish_reason is None]
        for sequence in overdue:
            # Whoever runs, or was there before it; those that arrived later can be among them only if they run by now.
            arrival_s = sequence.request.arrival_s
            before = [s for s in live if s is not sequence and (s.request.arrival_s <= arrival_s or s.num_computed > 0)]
            bounds.setdefault(
                sequence.seq_id, len(engine.plans) + sum(s.num_prompt + 2 * s.request.max_tokens for s in before) + running
            )
        plan = engine.step()
        if plan is None:
            continue
        check_budgets(engine, plan)
        news = [share.seq_id for share in plan.sequences if share.new is not None]
        for sequence in overdue:
            if engine.served[sequence.seq_id].started_s is None:
                later = [i for i in news if engine.served[i].sequence.request.arrival_s > sequence.request.arrival_s]
                assert not later, f"{later} overtook {sequence.seq_id}, which was overdue"
                assert len(engine.plans) <= bounds[sequence.seq_id], f"{sequence.seq_id} waits beyond its bound"
    for served in engine.served.values():
        assert len(served.tokens_s) == served.sequence.request.max_tokens


@settings(max_examples=60, deadline=None)
@example(
    {
        "max_num_seqs": 4,
        "max_num_batched_tokens": 16,
        "chunked_prefill_size": 16,
        "num_blocks": 40,
        "max_wait": 0.05,
        "admission": "optimistic",
    },
    _backlogs([(2, 175, 28, 5), (2, 178, 21, 5), (12, 19, 15, 2)]),
)
@given(MACHINES, BACKLOGS)
def test_no_tenant_is_passed_by_once_it_is_overdue(machine: dict[str, Any], arrivals: list[Sequence]) -> None:
    """Weights of a million to 1 would let one wait for ever; from max_wait after its last admission on, it goes first."""
    engine = VirtualEngine("fair", weights={"a": 1000.0, "b": 0.001}, **machine)
    admitted_s = dict.fromkeys(TENANTS, 0.0)
    engine._pending = sorted(arrivals, key=lambda sequence: sequence.request.arrival_s, reverse=True)
    while engine._pending or engine.scheduler.has_work():
        now = engine.now
        heads = {sequence.request.tenant: sequence.request.arrival_s for sequence in reversed(engine.waiting.values())}
        latest = now - engine.config.max_wait
        overdue = {tenant for tenant, at in heads.items() if max(at, admitted_s[tenant]) <= latest}
        started = {seq_id for seq_id, served in engine.served.items() if served.started_s is not None}
        plan = engine.step()
        if plan is None:
            continue
        check_budgets(engine, plan)
        # A preempted sequence that goes on keeps its place: it passes nobody, and for its tenant it is an admission.
        ids = [share.seq_id for share in plan.sequences if share.new is not None]
        admitted = {seq_id: engine.served[seq_id].sequence.request.tenant for seq_id in ids}
        news = {tenant for seq_id, tenant in admitted.items() if seq_id not in started}
        left = overdue - set(admitted.values())
        assert not left or news <= overdue, f"{news - overdue} overtook {left}, who are overdue"
        admitted_s.update(dict.fromkeys(admitted.values(), now))


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "priority", "fair"])
@pytest.mark.parametrize("max_wait", [0.05, 60.0])
@pytest.mark.parametrize("admission", ["optimistic", "guaranteed", "eager"])
@pytest.mark.parametrize("num_blocks", [48, 4096])
@pytest.mark.parametrize("num_wide", [1, 2, 3])
def test_a_single_request_starts_at_once_beside_wide_ones(
    policy: str, max_wait: float, admission: str, num_blocks: int, num_wide: int
) -> None:
    """64 choices hold half of 16 seats and half of the blocks at most, before and after they are overdue; those of two requests
    two thirds, those of three requests three quarters."""
    machine = VirtualEngine(policy, max_wait=max_wait, admission=admission, num_blocks=num_blocks)
    singles = [make_sequence(i, [i] * 20, 4, arrival_s=1.0 + i, tenant="b", stop_token_ids=[]) for i in range(6)]
    choices = [one for i in range(num_wide) for one in wide(100 * (i + 1), 64, 20, 40, arrival_s=i / 10, tenant="acd"[i])]
    machine.run([*choices, *singles])
    started = [machine.served[single.seq_id].started_s or 0.0 for single in singles]
    longest_s = max(step_seconds(plan) for plan in machine.plans)
    assert all(at - single.request.arrival_s <= longest_s for at, single in zip(started, singles, strict=True)), started
    assert [len(machine.served[choice.seq_id].tokens_s) for choice in choices] == [40] * 64 * num_wide
    most = max(sum(share.seq_id >= 100 for share in plan.sequences) for plan in machine.plans)
    assert most <= {1: 8, 2: 10, 3: 12}[num_wide]


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "priority", "fair"])
def test_wide_requests_share_what_they_may_hold(policy: str) -> None:
    """The one that came first gives back what is more than its share, as its choices end."""
    machine = VirtualEngine(policy, num_blocks=4096)
    machine._pending = [*wide(200, 64, 20, 40, arrival_s=0.5, tenant="b"), *wide(100, 64, 20, 40, arrival_s=0.0, tenant="a")]
    held = Counter[str]()
    while machine._pending or machine.scheduler.has_work():
        machine.step()
        now = Counter(sequence.request.tenant for sequence in machine.scheduler.running())
        held += now if len(now) == 2 else Counter()
    assert 0.7 < held["a"] / held["b"] < 1.5, held


def test_many_requests_of_two_choices_leave_next_to_nothing_idle() -> None:
    machine = VirtualEngine("fcfs", max_num_seqs=16, num_blocks=4096)
    machine.run([one for i in range(40) for one in wide(10 * i, 2, 20, 20, arrival_s=i / 100, tenant="a")])
    busy = [len(plan.sequences) for plan in machine.plans]
    assert max(busy) >= 14 and sum(count >= 13 for count in busy) > len(busy) / 2, busy


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["fcfs", "sjf", "priority", "fair"]), MACHINES, ARRIVALS, st.lists(st.integers(1, 24), max_size=4))
def test_wide_requests_end_whatever_comes_beside_them(
    policy: str, machine: dict[str, Any], arrivals: list[Sequence], widths: list[int]
) -> None:
    """And none of them has more than half of the seats, or the one that everybody has."""
    engine = VirtualEngine(policy, **machine)
    choices = [wide(1000 * (i + 1), n, 30, 20, arrival_s=i / 10, tenant="abc"[i % 3]) for i, n in enumerate(widths)]
    engine._pending = sorted([*arrivals, *sum(choices, [])], key=lambda sequence: sequence.request.arrival_s, reverse=True)
    while engine._pending or engine.scheduler.has_work():
        engine.step()
        held = Counter(s.request.request_id for s in engine.scheduler.running() if s.request.sampling.n > 1)
        assert all(count <= max(1, engine.config.max_num_seqs // 2) for count in held.values())
    for served in engine.served.values():
        assert len(served.tokens_s) == served.sequence.request.max_tokens


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.sampled_from([64, 256]), ARRIVALS)
def test_sjf_never_admits_while_a_smaller_estimate_waits(max_num_seqs: int, tokens: int, arrivals: list[Sequence]) -> None:
    engine = VirtualEngine("sjf", max_num_seqs=max_num_seqs, max_num_batched_tokens=tokens, max_wait=1e4)
    engine._pending = sorted(arrivals, key=lambda sequence: sequence.request.arrival_s, reverse=True)
    while engine._pending or engine.scheduler.has_work():
        before = {seq_id: sequence.expected_s for seq_id, sequence in engine.waiting.items()}
        plan = engine.step()
        if plan is None or not before:
            continue
        admitted = [before[share.seq_id] for share in plan.sequences if share.new is not None and share.seq_id in before]
        left = [before[seq_id] for seq_id in engine.waiting if seq_id in before]
        assert not admitted or not left or max(admitted) <= min(left)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.sampled_from([16, 4096]), ARRIVALS)
def test_priority_runs_no_larger_number_while_a_smaller_one_waits(
    max_num_seqs: int, num_blocks: int, arrivals: list[Sequence]
) -> None:
    """Nobody who waits outranks anybody who runs, once the step had the tokens to let it in."""
    engine = VirtualEngine("priority", max_num_seqs=max_num_seqs, num_blocks=num_blocks, max_wait=1e4)
    engine._pending = sorted(arrivals, key=lambda sequence: sequence.request.arrival_s, reverse=True)
    while engine._pending or engine.scheduler.has_work():
        plan = engine.step()
        if plan is None or plan.num_tokens == engine.config.max_num_batched_tokens:
            continue
        news = [engine.served[share.seq_id].sequence.request.priority for share in plan.sequences if share.new is not None]
        left = [sequence.request.priority for sequence in engine.waiting.values()]
        assert not news or not left or max(news) <= min(left)


WEIGHTS = {"a": 1.0, "b": 2.0, "c": 0.5}


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 4),
    st.sampled_from([16, 40, 4096]),
    st.sampled_from(["optimistic", "guaranteed"]),
    st.booleans(),
    BACKLOGS,
)
def test_fair_keeps_backlogged_tenants_within_the_published_bound(
    max_num_seqs: int, num_blocks: int, admission: str, weighted: bool, arrivals: list[Sequence]
) -> None:
    """Over every stretch of time in which two tenants both have waiting requests, service per weight differs by at most 2 U."""
    weights = WEIGHTS if weighted else dict.fromkeys(TENANTS, 1.0)
    engine = VirtualEngine(
        "fair", max_num_seqs=max_num_seqs, num_blocks=num_blocks, admission=admission, weights=weights, max_wait=1e4
    )
    # The tokens that all running sequences together can have: what the pool holds, or what so many can bring.
    most_running = min(num_blocks * BLOCK_SIZE, max_num_seqs * (MAX_PROMPT + MAX_OUTPUT))
    bound = 2 * max(PROMPT_WEIGHT * MAX_PROMPT, OUTPUT_WEIGHT * most_running) / min(weights.values())
    service = dict.fromkeys(TENANTS, 0.0)
    computed: Counter[int] = Counter()
    lowest: dict[tuple[str, str], float] = {}
    engine._pending = sorted(arrivals, key=lambda sequence: sequence.request.arrival_s, reverse=True)
    while engine._pending or engine.scheduler.has_work():
        backlog = Counter(sequence.request.tenant for sequence in engine.waiting.values())
        for one in TENANTS:
            for two in TENANTS:
                difference = service[one] / weights[one] - service[two] / weights[two]
                if not (backlog[one] and backlog[two]):
                    lowest.pop((one, two), None)
                    continue
                lowest[one, two] = min(difference, lowest.get((one, two), difference))
                assert difference - lowest[one, two] <= bound
        _step_and_count(engine, service, computed)


def _step_and_count(engine: VirtualEngine, service: dict[str, float], computed: Counter[int]) -> None:
    """One step. Service is what was computed for the first time: prompt tokens, and tokens generated."""
    before = {seq_id: len(served.tokens_s) for seq_id, served in engine.served.items()}
    plan = engine.step()
    for share in plan.sequences if plan is not None else ():
        sequence = engine.served[share.seq_id].sequence
        last = min(share.num_computed + share.num_new, sequence.num_prompt)
        service[sequence.request.tenant] += PROMPT_WEIGHT * max(0, last - computed[share.seq_id])
        computed[share.seq_id] = max(computed[share.seq_id], last)
        grown = len(engine.served[share.seq_id].tokens_s) - before.get(share.seq_id, 0)
        service[sequence.request.tenant] += OUTPUT_WEIGHT * grown


@pytest.mark.parametrize("target_itl", [30.0, 45.0])
def test_a_long_prompt_among_streams_does_not_stop_them(target_itl: float) -> None:
    """6,000 tokens arrive among 16 decoding streams: their p99 gap stays within 3 times the median, and is the target's."""
    engine = VirtualEngine("fcfs", max_num_seqs=32, max_num_batched_tokens=2048, target_itl=target_itl, num_blocks=2048)
    streams = [make_sequence(i, [i] * 40, 900, stop_token_ids=[], arrival_s=0.0) for i in range(16)]
    long = make_sequence(99, [99] * 6000, 20, stop_token_ids=[], arrival_s=2.0)
    engine.run([*streams, long])
    gaps = sorted(
        later - earlier
        for stream in streams
        for earlier, later in zip(
            engine.served[stream.seq_id].tokens_s, engine.served[stream.seq_id].tokens_s[1:], strict=False
        )
    )
    median, p99 = gaps[len(gaps) // 2], gaps[int(len(gaps) * 0.99)]
    assert p99 <= 3 * median and p99 <= 1.1 * target_itl / 1e3
    prompt_s = engine.served[99].tokens_s[0] - 2.0
    assert prompt_s < 12.0, "and the prompt is done in the time the target leaves for it"


def test_without_a_target_the_chunk_size_rules_and_streams_stall_longer() -> None:
    engine = VirtualEngine("fcfs", max_num_seqs=32, max_num_batched_tokens=2048, chunked_prefill_size=1024, num_blocks=2048)
    stream = make_sequence(1, [1] * 40, 300, stop_token_ids=[], arrival_s=0.0)
    engine.run([stream, make_sequence(99, [99] * 6000, 20, stop_token_ids=[], arrival_s=1.0)])
    tokens_s = engine.served[1].tokens_s
    assert max(b - a for a, b in zip(tokens_s, tokens_s[1:], strict=False)) > 0.4
