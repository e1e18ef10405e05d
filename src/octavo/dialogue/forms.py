"""CallForm: how calls are written where a grammar holds the model to it, and structural tags that say so.

A structural tag is a tree of elements in xgrammar's notation; grammar/structure.py makes a grammar of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.dialogue.reasoning import ReasoningTags
from octavo.structured_outputs import StructuredOutputsParams

MAX_CALLS = 16
"""Most calls of one answer where calls are required: small models would write calls until the context is full."""

CALL_SPACE = "[ ]?"
"""White space between the parts of arguments, as models write them on one line."""

Element = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallForm:
    """Text before the name, between name and arguments, and after the arguments; between calls; and what announces a call.

    trigger  begins every call, and nothing else; "" where a call is told from text by nothing
    """

    before: str
    between: str
    after: str
    separator: str
    trigger: str = ""

    def write(self, name: str, arguments: str) -> str:
        """A call as a model would write it."""
        return f"{self.before}{json.dumps(name)}{self.between}{arguments}{self.after}"

    def tag(self, function: Mapping[str, Any], *, strict: bool = True) -> Element:
        """One call of this function; strict: with arguments as its schema wants them, else with any object."""
        schema = _closed(function.get("parameters") or {}) if strict else {"type": "object"}
        content = {"type": "json_schema", "json_schema": schema}
        begin = f"{self.before}{json.dumps(function['name'])}{self.between}"
        return {"type": "tag", "begin": begin, "content": content, "end": self.after}


def _closed(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema that allows no parameters but those that it names, unless it says that it does. None at all: no parameters."""
    if not schema:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    is_open = not schema.get("properties") or any(key in schema for key in _OPENING_KEYS)
    return schema if is_open else {**schema, "additionalProperties": False}


_OPENING_KEYS = ("additionalProperties", "patternProperties", "unevaluatedProperties", "$ref", "allOf", "anyOf", "oneOf")
HERMES_FORM = CallForm('<tool_call>\n{"name": ', ', "arguments": ', "}\n</tool_call>", "\n", "<tool_call>")
BARE_FORM = CallForm('{"name": ', ', "parameters": ', "}", "; ")


def required_calls(form: CallForm, functions: Sequence[Mapping[str, Any]], *, several: bool) -> Element:
    """Nothing but calls: one, or with several up to MAX_CALLS."""
    return {
        "type": "tags_with_separator",
        "tags": [form.tag(function) for function in functions],
        "separator": form.separator,
        "at_least_one": True,
        "stop_after_first": not several,
        "at_most": MAX_CALLS,
    }


def possible_calls(form: CallForm, functions: Sequence[Mapping[str, Any]], *, several: bool) -> Element:
    """Free text, in which every call that is announced has the form of its tool; if that is not strict, any object will do."""
    tags = [form.tag(function, strict=bool(function.get("strict"))) for function in functions]
    return {"type": "triggered_tags", "triggers": [form.trigger], "tags": tags, "stop_after_first": not several}


def text_form(form: StructuredOutputsParams) -> Element | None:
    """The form of a text as an element; None where it cannot be a part of anything: a grammar, a structural tag."""
    if form.form in ("json", "json_object"):
        schema = form.json if form.json is not None and form.json is not False else {"type": "object"}
        return {"type": "json_schema", "json_schema": json.loads(schema) if isinstance(schema, str) else schema}
    if form.form == "regex":
        return {"type": "regex", "pattern": form.regex}
    if form.form == "choice":
        return {"type": "or", "elements": [{"type": "const_string", "value": text} for text in form.choice or ()]}
    return None


def after_reasoning(element: Element, tags: ReasoningTags, *, is_inside: bool) -> Element:
    """The element behind a block of reasoning, which the prompt has opened, or the model may."""
    end = {"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": tags.end}
    gap = {"type": "regex", "pattern": "\n{0,2}"}
    if is_inside:
        return {"type": "sequence", "elements": [end, gap, element]}
    block = {"type": "sequence", "elements": [{"type": "const_string", "value": tags.begin}, end, gap]}
    return {"type": "sequence", "elements": [{"type": "optional", "content": block}, element]}


def as_params(element: Element, options: StructuredOutputsParams | None = None) -> StructuredOutputsParams:
    """The form of a whole answer, with the white space that another form asks for."""
    tag = json.dumps({"format": element}, ensure_ascii=False)
    if options is None:
        return StructuredOutputsParams(structural_tag=tag, whitespace_pattern=CALL_SPACE)
    return StructuredOutputsParams(
        structural_tag=tag,
        disable_any_whitespace=options.disable_any_whitespace,
        whitespace_pattern=options.whitespace_pattern,
    )
