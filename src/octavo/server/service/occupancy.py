"""Occupancy: which service the requests under way belong to, so that an old one is kept until its last has left."""

from __future__ import annotations

from collections import Counter

from octavo.server.service.service import Service


class Occupancy:
    """How many requests may still turn to each service: those that came while it was the one that serves."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def enter(self, service: Service) -> None:
        self._counts[id(service)] += 1

    def leave(self, service: Service) -> None:
        self._counts[id(service)] -= 1
        if not self._counts[id(service)]:
            del self._counts[id(service)]

    def of(self, service: Service) -> int:
        return self._counts[id(service)]
