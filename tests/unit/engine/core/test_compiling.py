"""Requests with a grammar wait for its matcher while others go on; what cannot be compiled ends alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from tests.fakes import fake_text
from tests.unit.engine.rig import Rig

from octavo.grammar.matcher import GrammarMatcher
from octavo.sampling_params import SamplingParams
from octavo.structured_outputs import StructuredOutputsParams

FORMED = SamplingParams(max_tokens=4, structured_outputs=StructuredOutputsParams(regex="[a-z]+"))


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Its grammars are ready when the test says so."""
    made = Rig()
    made.core._grammars.compile = lambda source: made.matcher  # type: ignore[method-assign, attr-defined]
    made.matcher = Future[GrammarMatcher]()  # type: ignore[attr-defined]
    yield made
    made.input.forms.close()


def test_the_others_go_on_until_the_matcher_is_made(rig: Rig) -> None:
    rig.add("formed", "with a form", FORMED)
    rig.add("free", "without", SamplingParams(max_tokens=4))
    assert rig.core.has_work()
    while rig.ledger.num_live > 1:
        rig.step()
    assert rig.worker.batch_sizes == [1] * 4
    rig.matcher.set_result(None)  # type: ignore[attr-defined]
    last = rig.run()["formed"][-1]
    assert last.outputs[0].text == fake_text("with a form", 4)
    rig.core.check_integrity()


def test_an_idle_core_notices_that_the_matcher_is_made(rig: Rig) -> None:
    rig.add("formed", "with a form", FORMED)
    assert rig.step() == []
    threading.Thread(target=rig.matcher.set_result, args=(None,)).start()  # type: ignore[attr-defined]
    assert rig.run()["formed"][-1].outputs[0].text == fake_text("with a form", 4)


def test_a_grammar_that_cannot_be_compiled_ends_its_request_alone(rig: Rig) -> None:
    rig.add("formed", "with a form", FORMED)
    rig.add("free", "without", SamplingParams(max_tokens=4))
    rig.matcher.set_exception(ValueError("too large"))  # type: ignore[attr-defined]
    deliveries = rig.run()
    assert deliveries["formed"][-1].outputs[0].finish_reason == "error"
    assert "too large" in (deliveries["formed"][-1].error or "")
    assert deliveries["free"][-1].outputs[0].text == fake_text("without", 4)


def test_an_aborted_request_is_not_waited_for(rig: Rig) -> None:
    rig.add("formed", "with a form", FORMED)
    rig.abort("formed")
    assert not rig.core.has_work()
    rig.core.check_integrity()
