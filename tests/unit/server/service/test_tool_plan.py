"""What tools, their choice, a form and reasoning come to together: the texts that the grammar allows."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer
from tests.unit.dialogue.recorded import TOOLS

from octavo.dialogue.dialect import Dialect, choose_dialect
from octavo.dialogue.forms import BARE_FORM, HERMES_FORM, MAX_CALLS
from octavo.dialogue.reasoning import MISTRAL_THINK
from octavo.dialogue.tools import Tools
from octavo.errors import InvalidRequestError
from octavo.grammar.source import grammar_source
from octavo.server.service.tool_plan import NamedTool, ToolChoice, ToolPlan
from octavo.structured_outputs import StructuredOutputsParams

BYTES = LLTokenizer("byte")
HERMES = choose_dialect({}, knows_tools=True, tool_parser="hermes")
LLAMA = choose_dialect({}, knows_tools=True, tool_parser="llama3_json")
THINKS = choose_dialect({}, knows_tools=True, tool_parser="hermes", reasoning_parser="qwen3")
WEATHER = HERMES_FORM.write("get_weather", '{"city": "서울"}')
NOW = HERMES_FORM.write("now", "{}")
FORM = StructuredOutputsParams(json={"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]})
STRICT: Any = [{**TOOLS[0], "function": {**TOOLS[0]["function"], "strict": True}}, TOOLS[1]]


class Checker:
    """The part of an engine that a plan asks."""

    async def check_form(self, form: StructuredOutputsParams) -> None:
        grammar_source(form)


def form_of(
    dialect: Dialect, choice: ToolChoice, *, tools: Any = TOOLS, parallel: bool = True, prompt_end: str = "", **more: Any
) -> StructuredOutputsParams | None:
    plan = ToolPlan(dialect, Tools(tools), choice, parallel=parallel, **more)
    return asyncio.run(plan.form(Checker(), prompt_end))  # type: ignore[arg-type]


def allows(form: StructuredOutputsParams | None, text: str) -> bool:
    assert form is not None
    matcher, ids = LLMatcher(BYTES, grammar_source(form) or ""), BYTES.tokenize_str(text)
    return matcher.validate_tokens(ids) == len(ids) and bool(matcher.consume_tokens(ids)) and matcher.is_accepting()


def test_required_is_calls_and_nothing_else() -> None:
    form = form_of(HERMES, "required")
    assert allows(form, WEATHER) and allows(form, f"{WEATHER}\n{NOW}") and allows(form, "\n".join([NOW] * MAX_CALLS))
    broken = HERMES_FORM.write("get_weather", '{"days": 1}')
    extra = HERMES_FORM.write("now", '{"x": 1}')
    unnamed = HERMES_FORM.write("get_weather", '{"city": "a", "other": 1}')
    for text in ("", "Hi", f"Hi {NOW}", broken, extra, unnamed, f"{NOW}\n", "\n".join([NOW] * (MAX_CALLS + 1))):
        assert not allows(form, text), text


def test_one_call_where_one_is_named_or_parallel_calls_are_off() -> None:
    for form in (form_of(HERMES, NamedTool("now")), form_of(HERMES, "required", parallel=False)):
        assert allows(form, NOW) and not allows(form, f"{NOW}\n{NOW}")
    assert not allows(form_of(HERMES, NamedTool("now")), WEATHER)


def test_calls_are_written_as_the_model_writes_them() -> None:
    form = form_of(LLAMA, "required")
    weather = BARE_FORM.write("get_weather", '{"city": ""}')
    assert allows(form, f"{BARE_FORM.write('now', '{}')}; {weather}")
    assert not allows(form, NOW)


def test_auto_holds_strict_tools_to_their_schema_and_no_text() -> None:
    assert form_of(HERMES, "auto") is None and form_of(LLAMA, "auto", tools=STRICT) is None
    form = form_of(HERMES, "auto", tools=STRICT)
    loose = HERMES_FORM.write("now", '{"x": 1}')
    assert allows(form, "Hello <tool") and allows(form, f"Well.\n{WEATHER}\n{loose} Done.")
    assert not allows(form, f"Well. {HERMES_FORM.write('get_weather', '{}')}")


def test_a_form_is_for_answers_without_calls() -> None:
    required, auto = form_of(HERMES, "required", text=FORM), form_of(HERMES, "auto", tools=STRICT, text=FORM)
    assert allows(required, NOW) and not allows(required, '{"a": 1}')
    assert allows(auto, NOW) and allows(auto, '{"a": 1}') and not allows(auto, "Hi")
    grammar = StructuredOutputsParams(grammar='start: "x"')
    assert form_of(HERMES, "auto", tools=STRICT, text=grammar) == grammar and form_of(HERMES, "none", text=FORM) == FORM


def test_a_form_begins_behind_the_reasoning() -> None:
    opened, maybe, off = (
        form_of(THINKS, "none", text=FORM, prompt_end=end) for end in ("<think>\n", "\n", "<think>\n\n</think>\n\n")
    )
    assert allows(opened, 'Hm {"a": 2}</think>\n\n{"a": 1}') and not allows(opened, '{"a": 1}')
    assert allows(maybe, '<think>\nHm\n</think>\n\n{"a": 1}') and allows(maybe, '{"a": 1}') and not allows(maybe, "Hm")
    assert off == FORM
    choice = form_of(THINKS, "none", text=StructuredOutputsParams(choice=["yes", "no"]), prompt_end="<think>")
    assert allows(choice, "Hm.</think>yes") and not allows(choice, "Hm.</think>perhaps")
    regex = form_of(THINKS, "none", text=StructuredOutputsParams(regex="a/b+"), prompt_end="<think>")
    assert allows(regex, "</think>\na/bb") and not allows(regex, "</think>b")
    calls = form_of(THINKS, "required", prompt_end="<think>")
    assert allows(calls, f"Hm.</think>\n\n{NOW}") and not allows(calls, NOW)


def test_no_reasoning_before_a_form_that_cannot_follow_it() -> None:
    grammar = StructuredOutputsParams(grammar='start: "x"')
    mistral = replace(HERMES, reasoning=MISTRAL_THINK)
    for dialect, fields in (
        (THINKS, {"text": grammar, "prompt_end": "<think>"}),
        (mistral, {"text": FORM, "control_markers": ("[THINK]", "[/THINK]"), "prompt_end": "[THINK]"}),
    ):
        form = form_of(dialect, "none", **fields)  # type: ignore[arg-type]
        assert form is not None and allows(form, "x" if form == grammar else '{"a": 1}')
        end = fields.pop("prompt_end")
        plan = ToolPlan(dialect, Tools([]), "none", parallel=True, **fields)  # type: ignore[arg-type]
        assert plan.stream(str(end), splits_reasoning=True, hidden=()) is None, "the answer is content from its beginning"


@pytest.mark.parametrize("place", [0, 1])
def test_the_tool_whose_schema_cannot_be_is_named(place: int) -> None:
    bad = {"type": "function", "function": {"name": "bad", "parameters": {"type": "array", "uniqueItems": True}}}
    tools = [bad, TOOLS[1]] if place == 0 else [TOOLS[1], bad]
    choices: tuple[ToolChoice, ...] = ("required", NamedTool("bad"))
    for choice in choices:
        with pytest.raises(InvalidRequestError, match="uniqueItems") as caught:
            form_of(HERMES, choice, tools=tools)
        assert caught.value.param == f"tools[{place}].function.parameters"
