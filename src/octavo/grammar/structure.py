"""Structural tags as a tree of elements, in xgrammar's notation: what a text is made of, from constant parts to JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from llguidance import LLMatcher

from octavo.errors import InvalidRequestError

MAX_ELEMENT_DEPTH = 16
MAX_REPEATED = 1024


class StructureGrammar:
    """Makes the Lark grammar of one tree.

    json_source   (schema, place) -> the grammar of JSON of that schema, in Lark's form: "start: ..."
    param         what the tree is called in errors; they name the place, as "PARAM.tags[0].content.json_schema"
    """

    def __init__(self, json_source: Callable[[Any, str], str], param: str) -> None:
        self._json_source = json_source
        self._param = param
        self._rules: list[str] = []

    def grammar(self, tree: Any) -> str:
        """Raises InvalidRequestError for what is no element, or one of an unknown kind."""
        start = self._element(tree, self._param, 0)
        return "\n".join([f"start: {start}", r"TEXT: /(.|\n)*/", *self._rules]) + "\n"

    def _element(self, element: Any, place: str, depth: int) -> str:
        kind = element.get("type") if isinstance(element, dict) else None
        make = _KINDS.get(kind) if isinstance(kind, str) else None
        if make is None or depth > MAX_ELEMENT_DEPTH:
            what = f"is nested more than {MAX_ELEMENT_DEPTH} levels deep" if make else f"must be one of {', '.join(_KINDS)}"
            raise InvalidRequestError(f"{place}.type {what}", param=f"{place}.type")
        return make(self, element, place, depth + 1)

    def _elements(self, element: dict[str, Any], key: str, place: str, depth: int) -> list[str]:
        value = element.get(key)
        if not isinstance(value, list) or not value:
            raise _wrong(f"{place}.{key}", "a list of elements, not an empty one")
        return [self._element(part, f"{place}.{key}[{index}]", depth) for index, part in enumerate(value)]

    def _const(self, element: dict[str, Any], place: str, depth: int) -> str:
        return json.dumps(_text(element, "value", place))

    def _json(self, element: dict[str, Any], place: str, depth: int) -> str:
        source = self._json_source(element.get("json_schema"), f"{place}.json_schema")
        return source.removeprefix("start: ").strip()

    def _regex(self, element: dict[str, Any], place: str, depth: int) -> str:
        return self._rule(_start(LLMatcher.grammar_from_regex(_text(element, "pattern", place))))

    def _any_text(self, element: dict[str, Any], place: str, depth: int) -> str:
        return "TEXT"

    def _sequence(self, element: dict[str, Any], place: str, depth: int) -> str:
        return f"({' '.join(self._elements(element, 'elements', place, depth))})"

    def _or(self, element: dict[str, Any], place: str, depth: int) -> str:
        return self._rule(" | ".join(self._elements(element, "elements", place, depth)))

    def _optional(self, element: dict[str, Any], place: str, depth: int) -> str:
        return f"({self._element(element.get('content'), f'{place}.content', depth)})?"

    def _tag(self, element: dict[str, Any], place: str, depth: int) -> str:
        begin, end = _text(element, "begin", place), _text(element, "end", place)
        content = element.get("content")
        opening = [json.dumps(begin)] if begin else []
        if isinstance(content, dict) and content.get("type") == "any_text":
            if not end:
                raise _wrong(f"{place}.end", "a text: nothing else ends any_text")
            return f"({' '.join([*opening, self._rule(f'TEXT {json.dumps(end)}', lazy=True)])})"
        inner = self._element(content, f"{place}.content", depth)
        return self._rule(" ".join([*opening, inner, *([json.dumps(end)] if end else [])]))

    def _separated(self, element: dict[str, Any], place: str, depth: int) -> str:
        tag = self._rule(" | ".join(self._elements(element, "tags", place, depth)))
        most = element.get("at_most")
        if most is not None and not (type(most) is int and 1 <= most <= MAX_REPEATED):
            raise _wrong(f"{place}.at_most", f"a whole number from 1 to {MAX_REPEATED}")
        text = tag
        if not element.get("stop_after_first"):
            separator = _text(element, "separator", place)
            again = self._rule(f"{json.dumps(separator)} {tag}" if separator else tag)
            text = f"{tag} {again}" + ("*" if most is None else f"{{0,{most - 1}}}")
        return f"({text})" + ("" if element.get("at_least_one") else "?")

    def _triggered(self, element: dict[str, Any], place: str, depth: int) -> str:
        triggers, tags = element.get("triggers"), element.get("tags")
        if not isinstance(triggers, list) or not all(isinstance(word, str) and word for word in triggers):
            raise _wrong(f"{place}.triggers", "a list of texts, none of them empty")
        if not isinstance(tags, list) or not tags:
            raise _wrong(f"{place}.tags", "a list of tags, not an empty one")
        by_trigger: dict[str, list[str]] = {}
        for index, tag in enumerate(tags):
            where = f"{place}.tags[{index}]"
            begin = _text(tag, "begin", where) if isinstance(tag, dict) and tag.get("type") == "tag" else None
            trigger = next((word for word in triggers if begin is not None and begin.startswith(word)), None)
            if begin is None or trigger is None:
                raise _wrong(where, "a tag that begins with one of the triggers")
            rest = self._element({**tag, "begin": begin.removeprefix(trigger)}, where, depth)
            by_trigger.setdefault(trigger, []).append(rest)
        parts = [
            f"{self._rule(f'TEXT {json.dumps(trigger)}', lazy=True)} {self._rule(' | '.join(rests))}"
            for trigger, rests in by_trigger.items()
        ]
        tagged = self._rule(" | ".join(parts))
        if element.get("stop_after_first"):
            return f"({tagged})" if element.get("at_least_one") else f"({tagged} | TEXT)"
        return f"({tagged}{'+' if element.get('at_least_one') else '*'} TEXT)"

    def _rule(self, body: str, *, lazy: bool = False) -> str:
        """The name of a new rule."""
        name = f"part_{len(self._rules)}"
        self._rules.append(f"{name}{'[lazy]' if lazy else ''}: {body}")
        return name


_KINDS: dict[str, Callable[[StructureGrammar, dict[str, Any], str, int], str]] = {
    "const_string": StructureGrammar._const,
    "json_schema": StructureGrammar._json,
    "regex": StructureGrammar._regex,
    "any_text": StructureGrammar._any_text,
    "sequence": StructureGrammar._sequence,
    "or": StructureGrammar._or,
    "optional": StructureGrammar._optional,
    "tag": StructureGrammar._tag,
    "triggered_tags": StructureGrammar._triggered,
    "tags_with_separator": StructureGrammar._separated,
}


def _text(element: dict[str, Any], key: str, place: str) -> str:
    value = element.get(key)
    if not isinstance(value, str):
        raise _wrong(f"{place}.{key}", "a text")
    return value


def _start(source: str) -> str:
    """The body of the first rule of a grammar of llguidance, as JSON or as Lark."""
    lark = str(json.loads(source)["grammars"][0]["lark_grammar"]) if source.startswith("{") else source
    return lark.split("start: ", 1)[1].strip()


def _wrong(place: str, wanted: str) -> InvalidRequestError:
    return InvalidRequestError(f"{place} must be {wanted}", param=place)
