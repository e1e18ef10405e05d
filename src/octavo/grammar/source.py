"""grammar_source: the form that a request asks for, as the text of an llguidance grammar."""

from __future__ import annotations

import json
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, StructTag, grammar_from

from octavo.errors import InvalidRequestError
from octavo.grammar.negation import escaped
from octavo.grammar.rewrite import rewritten
from octavo.grammar.schema import explain, parse_schema
from octavo.grammar.spelling import free_spelling, has_long_texts
from octavo.grammar.structure import StructureGrammar
from octavo.structured_outputs import StructuredOutputsParams

MAX_REGEX_LENGTH = 16 << 10
MAX_GRAMMAR_LENGTH = 256 << 10
MAX_CHOICES = 4096
MAX_CHOICES_LENGTH = 256 << 10
MAX_STRUCTURES = 256
WHITESPACE = r"[ \t\n\r]{0,40}"
"""Between the parts of JSON. Small models fall into endless white space when nothing bounds it."""

LIMITS = LLParserLimits(verbose_errors=False, max_items_in_row=8192, max_lexer_states=65536)
"""Bounds of what a grammar may cost to build and at each token; errors do not repeat the grammar."""


NO_WAY_ON = "NoExtensionBias"
"""llguidance's name for a text behind which no token can stand."""


def grammar_source(params: StructuredOutputsParams) -> str | None:
    """The grammar of what is asked for; None when nothing is. The same params always give the same text.

    Raises InvalidRequestError naming the field, and for a JSON schema the keyword and its path. It may take long for hostile
    input, so it runs where it can be stopped (see checker.py).
    """
    form = params.form
    if form is None:
        return None
    source = _lark(_source(params, form))
    if has_long_texts(source):
        source = free_spelling(source)
    _check_beginning(source, f"structured_outputs.{form}")
    return source


def _check_beginning(source: str, param: str) -> None:
    """Some grammars are within the limits, and their first token is not."""
    matcher = LLMatcher(LLTokenizer("byte"), source, log_level=0, limits=LIMITS)
    matcher.compute_bitmask()
    if matcher.is_error():
        reason = _one_line(matcher.get_error())
        if NO_WAY_ON in reason:
            raise InvalidRequestError(f"{param} allows no text at all; look for a part that refers to itself", param=param)
        raise InvalidRequestError(
            f"{param} allows too much at once: {reason}", param=param, code="structured_output_too_complex"
        )


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
    parsed, options = parse_schema(schema, param), _json_options(params)
    try:
        source, fault = _compiled(parsed, options)
        if fault and (other := rewritten(parsed)) is not None:
            source, still = _compiled(other, options)
            fault = fault if still else ""
    except ValueError as error:
        raise InvalidRequestError(f"{param} cannot be used: {_one_line(str(error))}", param=param) from None
    if fault:
        raise explain(fault, parsed, param)
    return source


def _compiled(schema: dict[str, Any], options: Any) -> tuple[str, str]:
    """The grammar of a schema, and what is wrong with it. Raises ValueError."""
    source: str = LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=options)
    failed, messages = LLMatcher.validate_grammar_with_warnings(source, limits=LIMITS)
    return source, messages[0] if failed else ""


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
    # One regular expression: as alternatives of a rule, each of them would be looked at anew at every token.
    return LLMatcher.grammar_from_regex("|".join("".join(map(escaped, choice)) for choice in choices))


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
