"""CompilingRequests: requests that wait for the matcher of their grammar. Steps go on meanwhile."""

from __future__ import annotations

import concurrent.futures
from concurrent.futures import Future

from octavo.grammar.matcher import GrammarMatcher
from octavo.request import Request

WAIT_S = 0.005
"""Between two looks of a core that has nothing else to do: at the grammars, and at its orders."""


class CompilingRequests:
    """By request id, in order of arrival."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[Request, Future[GrammarMatcher]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._waiting

    def add(self, request: Request, matcher: Future[GrammarMatcher]) -> None:
        self._waiting[request.request_id] = (request, matcher)

    def drop(self, request_id: str) -> bool:
        """Whether it was among them."""
        return self._waiting.pop(request_id, None) is not None

    def take_done(self, *, may_wait: bool) -> list[Request]:
        """Those whose matcher is made, or cannot be. may_wait: there is nothing else to do."""
        if may_wait:
            futures = [matcher for _, matcher in self._waiting.values()]
            concurrent.futures.wait(futures, WAIT_S, concurrent.futures.FIRST_COMPLETED)
        done = [request for request, matcher in self._waiting.values() if matcher.done()]
        for request in done:
            del self._waiting[request.request_id]
        return done
