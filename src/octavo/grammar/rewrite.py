"""rewritten: keywords of JSON schemas that are not enforced as they stand, said by those that are."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

from octavo.grammar.negation import Schemas, any_of
from octavo.grammar.schema import DATA_KEYS, NAME_KEYS

MAX_NODES = 50_000
"""Schemas, all copies counted, of what comes out."""

class _TooLarge(Exception):
    """There would be more than MAX_NODES schemas."""


def rewritten(schema: dict[str, Any]) -> dict[str, Any] | None:
    """A schema all of whose values the given one accepts; None if nothing can be said in another way.

    Values that need more than the other keywords can say are missing from it: it is never wider, and sometimes narrower.
    """
    rewriter = _Rewriter(schema)
    try:
        result = rewriter.schema(schema)
    except (_TooLarge, RecursionError):
        return None
    return result if rewriter.num_changes and isinstance(result, dict) else None


class _Rewriter:
    def __init__(self, root: dict[str, Any]) -> None:
        self._schemas = Schemas(root)
        self._num_nodes = 0
        self.num_changes = 0

    def schema(self, schema: Any) -> Any:
        """Inner schemas first. A keyword that cannot be said in another way stays."""
        self._num_nodes += 1
        if self._num_nodes > MAX_NODES:
            raise _TooLarge
        if not isinstance(schema, dict):
            return schema  # true, false, or the value of a keyword that has no schemas
        result = {key: self._inner(key, value) for key, value in schema.items()}
        for keys, say in _OTHER_WAYS:
            given = {key: schema[key] for key in keys if key in schema}
            said = say(self, given) if given else None
            if said is None:
                continue
            self.num_changes += 1
            if said is False:
                return False
            for key in given:
                del result[key]
            result["allOf"] = [*result.get("allOf", []), *map(self.schema, said)]
        return result

    def _inner(self, key: str, value: Any) -> Any:
        """The value of a keyword: data, a schema, or schemas in a list or by name."""
        if key in DATA_KEYS:
            return value
        if key in NAME_KEYS and isinstance(value, dict):
            return {name: self.schema(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.schema(inner) for inner in value]
        return self.schema(value)

    def not_(self, given: dict[str, Any]) -> Any:
        no = self._schemas.negation(given["not"])
        return no if no is None or no is False else [no]

    def one_of(self, given: dict[str, Any]) -> Any:
        """Each branch, without what belongs to another one too."""
        branches = given["oneOf"]
        if not isinstance(branches, list) or not branches:
            return None
        without: dict[int, list[Any]] = {index: [] for index in range(len(branches))}
        for first, second in combinations(range(len(branches)), 2):
            if self._schemas.disjoint(branches[first], branches[second]):
                continue
            for one, other in ((first, second), (second, first)):
                no = self._schemas.negation(branches[other])
                if no is None:
                    return None
                without[one].append(no)
        kept = [(branch, nots) for branch, nots in zip(branches, without.values(), strict=True) if False not in nots]
        return [any_of([{"allOf": [branch, *nots]} if nots else branch for branch, nots in kept])] if kept else False

    def dependencies(self, given: dict[str, Any]) -> Any:
        """Either the property is not there, or what depends on it holds."""
        said = []
        for needs in given.values():
            if not isinstance(needs, dict):
                return None
            for name, need in needs.items():
                then = {"required": need} if isinstance(need, list) else need
                said.append({"anyOf": [{"properties": {name: False}}, then]})
        return said

    def condition(self, given: dict[str, Any]) -> Any:
        if "if" not in given:
            return []
        no = self._schemas.negation(given["if"])
        if no is None:
            return None
        then = {"allOf": [given["if"], given.get("then", True)]}
        return [then if no is False else {"anyOf": [then, {"allOf": [no, given.get("else", True)]}]}]


_OTHER_WAYS: tuple[tuple[tuple[str, ...], Callable[[_Rewriter, dict[str, Any]], Any]], ...] = (
    (("not",), _Rewriter.not_),
    (("oneOf",), _Rewriter.one_of),
    (("dependencies", "dependentRequired", "dependentSchemas"), _Rewriter.dependencies),
    (("if", "then", "else"), _Rewriter.condition),
)
"""Keywords, and what says them: schemas that all must hold, False if nothing can, None if there is no other way."""
