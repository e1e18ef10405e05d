"""Templates in processes of their own: the same texts, limits of time and memory, and an end at any time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from octavo.errors import BusyError, InvalidRequestError
from octavo.grammar.forms import Forms
from octavo.sandbox.pool import NoAnswerError, ProcessPool
from octavo.structured_outputs import StructuredOutputsParams
from octavo.text.template_process import MAX_PROCESSES, TemplateProcesses
from octavo.text.template_render import LocalRenderer, Renderer, TemplateFailed

NOW = datetime(2024, 5, 6, 7, 8, 9)
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
SOURCES = {
    "good": "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %} {{ strftime_now('%Y') }} {{ n }}",
    "raises": "{{ raise_exception('no ' ~ messages[0].role) }}",
    "fails": "{% for m in messages %}{{ m.content + 1 }}{% endfor %}",
    "unknown filter": "{{ messages|nonsense }}",
    "long": "{% for a in range(90000) %}{{ 'x' * 900 }}{% endfor %}",
    "endless": LOOP,
    "endless expression": "{{ range(99999)|map('center', 9999)|map('upper')|map('lower')|map('title')|list|length }}" * 99,
    "doubles": "{% set a = namespace(t='xxx') %}{% for i in range(60) %}{% set a.t = a.t ~ a.t %}{% endfor %}{{ a.t }}",
    "wide": "{{ ''|center(4000000000)|length }}",
    "replaces": "{% set a = 'a' * 99999 %}{{ a|replace('a', a)|length }}",
    "deep": "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "power": "{% set a = namespace(t=10) %}{% for i in range(40) %}{% set a.t = a.t * a.t %}{% endfor %}{{ a.t }}",
}
USER = {"messages": [{"role": "user", "content": "h\u00e9 \ud800 \U0001f600\x00"}], "n": 10**40}


@pytest.fixture
def renderer() -> Iterator[TemplateProcesses]:
    processes = TemplateProcesses(SOURCES, render_s=1.0)
    yield processes
    processes.close()


def outcome(renderer: Renderer, name: str) -> tuple[str, str]:
    try:
        return "text", renderer.render(name, USER, NOW)
    except TemplateFailed as error:
        return error.kind, error.reason


@pytest.mark.parametrize("name", ["good", "raises", "fails", "unknown filter", "long"])
def test_the_outcome_is_that_of_rendering_here(renderer: TemplateProcesses, name: str) -> None:
    assert outcome(renderer, name) == outcome(LocalRenderer(SOURCES), name)


@pytest.mark.parametrize("name", ["endless", "endless expression", "doubles", "wide", "replaces", "deep", "power"])
def test_a_hostile_template_fails_and_the_next_rendering_works(renderer: TemplateProcesses, name: str) -> None:
    kind, reason = outcome(renderer, name)
    assert kind == "failed" and "\n" not in reason and len(reason) < 700
    assert outcome(renderer, "good")[0] == "text"


def test_a_slow_rendering_does_not_hold_up_another() -> None:
    renderer = TemplateProcesses(SOURCES, render_s=600.0)
    slow = [threading.Thread(target=outcome, args=(renderer, "endless")) for _ in range(MAX_PROCESSES - 1)]
    for thread in slow:
        thread.start()
    assert outcome(renderer, "good")[0] == "text"
    renderer.close()
    for thread in slow:  # closing ends what renders
        thread.join()


@pytest.mark.parametrize(
    ("cause", "kind"), [("busy", "busy"), ("start", "busy"), ("closed", "busy"), ("late", "failed"), ("ended", "failed")]
)
def test_what_may_pass_is_told_from_what_will_not(
    cause: Any, kind: str, renderer: TemplateProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_answer(*_request: object) -> tuple[str, str]:
        raise NoAnswerError(cause, "detail")

    monkeypatch.setattr(ProcessPool, "ask", no_answer)
    assert outcome(renderer, "good")[0] == kind
    forms = Forms()
    with pytest.raises(BusyError if kind == "busy" else InvalidRequestError):
        forms.grammar(StructuredOutputsParams(regex="a"))


def test_after_the_end_nothing_is_rendered() -> None:
    renderer = TemplateProcesses(SOURCES)
    renderer.warm()
    renderer.close()
    renderer.close()
    assert outcome(renderer, "good") == ("busy", "the engine is shut down")
