"""grammar_source: the form that a request asks for, as the text of an llguidance grammar."""

from __future__ import annotations

import json
from typing import Any

from llguidance import LLMatcher, LLParserLimits, StructTag, grammar_from

from octavo.errors import InvalidRequestError
from octavo.grammar.schema import explain, parse_schema
from octavo.grammar.structure import StructureGrammar
from octavo.structured_outputs import StructuredOutputsParams

MAX_REGEX_LENGTH = 16 << 10
MAX_GRAMMAR_LENGTH = 256 << 10
MAX_CHOICES = 4096
MAX_CHOICES_LENGTH = 256 << 10
MAX_STRUCTURES = 256
WHITESPACE = r"[ \t\n\r]{0,40}"
"""Between the parts of JSON. Small models fall into endless white space when nothing bounds it."""

LIMITS = LLParserLimits(verbose_errors=False)
"""Bounds of what a grammar may cost to build and at each token; errors do not repeat the grammar."""


_CHOOSE = '%llguidance {"no_forcing": true}\n'
"""The model chooses how it spells what must come. Otherwise llguidance has the text encoded, and forces those tokens."""


def grammar_source(params: StructuredOutputsParams) -> str | None:
    """The grammar of what is asked for; None when nothing is. The same params always give the same text.

    Raises InvalidRequestError naming the field, and for a JSON schema the keyword and its path. It may take long for hostile
    input, so it runs where it can be stopped (see checker.py).
    """
    form = params.form
    return None if form is None else _CHOOSE + _lark(_source(params, form))


def _lark(source: str) -> str:
    """A grammar of llguidance in Lark's form, which alone can have options."""
    if not source.startswith("{"):
        return source
    [grammar] = json.loads(source)["grammars"]
    return str(grammar.get("lark_grammar") or "start: %json " + json.dumps(grammar["json_schema"]))


def _source(params: StructuredOutputsParams, form: str) -> str:
    value, param = getattr(params, form), f"structured_outputs.{form}"
    if form in ("json", "json_object"):
        return _json(params, {"type": "object"} if form == "json_object" else value, param)
    if form == "regex":
        _check_length(value, MAX_REGEX_LENGTH, param)
        return _checked(LLMatcher.grammar_from_regex(value), param)
    if form == "choice":
        return _checked(_choice(value, param), param)
    if form == "grammar":
        _check_length(value, MAX_GRAMMAR_LENGTH, param)
        try:
            source = grammar_from("grammar", value)
        except (ValueError, RecursionError) as error:
            raise InvalidRequestError(f"{param} cannot be read: {_one_line(str(error))}", param=param) from None
        return _checked(source, param)
    return _checked(_structural_tag(params, value, param), param)


def _json(params: StructuredOutputsParams, schema: str | bool | dict[str, Any], param: str) -> str:
    parsed = parse_schema(schema, param)
    try:
        source = LLMatcher.grammar_from_json_schema(json.dumps(parsed), overrides=_json_options(params))
    except ValueError as error:
        raise InvalidRequestError(f"{param} cannot be used: {_one_line(str(error))}", param=param) from None
    failed, messages = LLMatcher.validate_grammar_with_warnings(source, limits=LIMITS)
    if failed:
        raise explain(messages[0], parsed, param)
    return source


def _json_options(params: StructuredOutputsParams) -> Any:
    if params.disable_any_whitespace:
        return {"whitespace_flexible": False}
    return {"whitespace_pattern": WHITESPACE if params.whitespace_pattern is None else params.whitespace_pattern}


def _choice(choices: list[str], param: str) -> str:
    if not choices or not all(choices):
        raise InvalidRequestError(f"{param} must be a list of texts, none of them empty", param=param)
    length = sum(map(len, choices))
    if len(choices) > MAX_CHOICES or length > MAX_CHOICES_LENGTH:
        raise InvalidRequestError(
            f"{param} has {len(choices)} texts of {length} characters; at most {MAX_CHOICES} texts and {MAX_CHOICES_LENGTH} "
            "characters are allowed",
            param=param,
        )
    return LLMatcher.grammar_from_lark("start: " + " | ".join(map(json.dumps, choices)))


def _structural_tag(params: StructuredOutputsParams, text: str, param: str) -> str:
    _check_length(text, MAX_GRAMMAR_LENGTH, param)
    try:
        tag = json.loads(text)
    except (ValueError, RecursionError):
        tag = None
    if isinstance(tag, dict) and tag.get("format") is not None:
        made = StructureGrammar(lambda schema, place: _lark(_json(params, schema, place)), f"{param}.format")
        return made.grammar(tag["format"])
    try:
        structures, triggers = tag["structures"], tag["triggers"]
        parts = [(part["begin"], part["schema"], part["end"]) for part in structures]
    except (KeyError, TypeError):
        raise InvalidRequestError(
            f'{param} must be JSON of the form {{"structures": [{{"begin", "schema", "end"}}], "triggers": [...]}}, '
            'or {"format": ...}',
            param=param,
        ) from None
    texts = [part for begin, _, end in parts for part in (begin, end)] + list(triggers)
    if not 0 < len(parts) <= MAX_STRUCTURES or not all(isinstance(part, str) for part in texts):
        raise InvalidRequestError(f"{param} must have 1 to {MAX_STRUCTURES} structures, begun and ended by texts", param=param)
    tags = []
    for index, (begin, schema, end) in enumerate(parts):
        trigger = next((trigger for trigger in triggers if trigger and begin.startswith(trigger)), None)
        if trigger is None:
            raise InvalidRequestError(f"{param}: structure {index} begins with none of the triggers", param=param)
        parsed = parse_schema(schema, f"{param}.structures[{index}].schema")
        tags.append(StructTag(trigger=trigger, begin=begin, grammar=json.dumps(parsed), end=end))
    return LLMatcher.grammar_from_lark(StructTag.to_grammar(tags, assume_special=False))


def _checked(source: str, param: str) -> str:
    failed, messages = LLMatcher.validate_grammar_with_warnings(source, limits=LIMITS)
    if failed:
        raise InvalidRequestError(f"{param} cannot be used: {_one_line(messages[0])}", param=param)
    return source


def _check_length(text: str, most: int, param: str) -> None:
    if len(text) > most:
        raise InvalidRequestError(f"{param} has {len(text)} characters; at most {most} are allowed", param=param)


def _one_line(message: str) -> str:
    """The words of a library's message, without its pictures of the place."""
    line = " ".join(part.strip() for part in message.split("\n") if part.strip(" ^|")).strip()
    return line if len(line) <= 200 else line[:197] + "..."
