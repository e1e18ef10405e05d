"""GrammarCompiler: grammars become matchers beside the steps, and are kept for those who ask for the same again."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor

from octavo.grammar.matcher import GrammarMatcher, GrammarVocabulary
from octavo.grammar.tokens import TokenTable

MAX_COMPILED = 256
"""Grammars that are kept. One that was dropped while an answer still needs it is compiled again."""


class GrammarCompiler:
    """Belongs to one thread; it has another one that compiles, without holding up Python meanwhile."""

    def __init__(self, table: TokenTable | None = None) -> None:
        """table: see set_tokens."""
        self._executor = ThreadPoolExecutor(1, "octavo-grammar")
        self._vocabulary: Future[GrammarVocabulary] | None = None
        self._compiled: OrderedDict[str, Future[GrammarMatcher]] = OrderedDict()
        if table is not None:
            self.set_tokens(table)

    def set_tokens(self, table: TokenTable) -> None:
        """The tokens of the model; needed before the first grammar."""
        if self._vocabulary is None:
            self._vocabulary = self._executor.submit(GrammarVocabulary, table)

    def compile(self, source: str) -> Future[GrammarMatcher]:
        """What will hold the matcher of a grammar, at its beginning, or the ValueError of a grammar that cannot be."""
        future = self._compiled.get(source)
        if future is None:
            future = self._compiled[source] = self._executor.submit(self._make, source)
            if len(self._compiled) > MAX_COMPILED:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(source)
        return future

    def matcher(self, source: str) -> GrammarMatcher:
        """A matcher at its beginning, for one answer; it waits unless `compile` is done. Raises ValueError."""
        return self.compile(source).result().copy()

    def _make(self, source: str) -> GrammarMatcher:
        if self._vocabulary is None:
            raise ValueError("the tokens of the model are not known here")
        return GrammarMatcher(self._vocabulary.result(), source)
