"""Requests that run out of time, from the core to their owner and the ledger."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fakes import fake_text
from tests.unit.engine.rig import Rig

from octavo.engine.frontend.ledger import ShedReason
from octavo.engine.frontend.outputs import RequestOutput
from octavo.errors import InvalidRequestError
from octavo.request import RequestOptions
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.sequence import FinishReason


def timed_rig(**scheduler: Any) -> Rig:
    """A rig whose core goes by the rig's own clock: a second per step."""
    rig = Rig(**scheduler)
    rig.core._clock = lambda: rig.now_s
    return rig


def add(rig: Rig, request_id: str, sampling: SamplingParams, **options: Any) -> None:
    prepared = rig.input.prepare("prompt", sampling, request_id, RequestOptions(**options), arrival_s=rig.now_s)
    rig.outputs.add(prepared.request, prepared.prompt, RequestOutputKind.CUMULATIVE)
    rig.core.add_request(prepared.request)


def last(deliveries: dict[str, list[RequestOutput]], request_id: str) -> RequestOutput:
    assert sum(output.finished for output in deliveries[request_id]) == 1
    return deliveries[request_id][-1]


def test_a_running_request_keeps_its_text_and_says_that_time_was_over() -> None:
    rig = timed_rig()
    add(rig, "r", SamplingParams(max_tokens=50), timeout_s=5.0)
    choice = last(rig.run(), "r").outputs[0]
    assert (choice.finish_reason, choice.stop_reason) == ("length", "timeout")
    assert choice.text == fake_text("prompt", 50)[: len(choice.text)] and len(choice.token_ids) == 4
    assert rig.ledger.totals.finished[FinishReason.TIMEOUT] == 1


def test_a_queued_request_ends_in_the_same_way_with_no_text() -> None:
    rig = timed_rig(max_num_seqs=1)
    add(rig, "long", SamplingParams(max_tokens=20))
    add(rig, "r", SamplingParams(n=2, max_tokens=50), timeout_s=5.0)
    output = last(rig.run(), "r")
    assert [(choice.text, choice.finish_reason, choice.stop_reason) for choice in output.outputs] == [
        ("", "length", "timeout")
    ] * 2
    assert rig.ledger.totals.finished[FinishReason.TIMEOUT] == 1


def test_a_request_that_waits_longer_than_the_queue_timeout_is_shed_with_all_its_choices() -> None:
    rig = timed_rig(max_num_seqs=1, queue_timeout=4.0)
    add(rig, "long", SamplingParams(max_tokens=20))
    add(rig, "r", SamplingParams(n=3, max_tokens=5), tenant="acme")
    output = last(rig.run(), "r")
    assert output.error is not None and "--queue-timeout" in output.error
    assert output.metrics is not None and output.metrics.outcome is FinishReason.SHED
    assert rig.ledger.totals.shed[ShedReason.QUEUE_TIMEOUT] == 1
    assert dict(rig.ledger.tenants.items())["acme"].shed == 1


def test_the_estimate_stands_in_the_ledger_once_the_request_has_started() -> None:
    rig = timed_rig()
    add(rig, "r", SamplingParams(max_tokens=10))
    rig.step()
    record = rig.ledger.get("r")
    assert record is not None and record.estimated_s is not None and record.estimated_s > 0.0
    rig.run()


@pytest.mark.parametrize("timeout_s", [0, -1.0, 1e9, float("nan"), True, "3"])
def test_a_timeout_that_is_none_is_refused(timeout_s: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        add(Rig(), "r", SamplingParams(), timeout_s=timeout_s)
    assert caught.value.param == "timeout"


@pytest.mark.parametrize("tenant", ["", "t" * 257, 3])
def test_a_tenant_that_is_none_is_refused(tenant: Any) -> None:
    with pytest.raises(InvalidRequestError):
        add(Rig(), "r", SamplingParams(), tenant=tenant)
