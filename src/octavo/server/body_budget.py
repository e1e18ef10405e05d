"""BodyBudget: how many bytes of request bodies are held at once, over all connections."""

from __future__ import annotations

from octavo.errors import OverloadedError

BODIES_IN_BUDGET = 8
"""Bodies of the largest size that may be on their way at once. Most are a thousand times smaller: thousands of those may."""


class BodyBudget:
    """A count of bytes with a limit: without it, hundreds of slow senders of large bodies would fill the memory."""

    def __init__(self, max_body_size: int) -> None:
        self._limit = BODIES_IN_BUDGET * max_body_size
        self.held = 0

    def take(self, size_bytes: int) -> None:
        """Count bytes that arrived. Raises OverloadedError, and counts nothing, when the limit would be passed."""
        if self.held + size_bytes > self._limit:
            raise OverloadedError(f"request bodies on their way hold {self.held} bytes; at most {self._limit} are kept at once")
        self.held += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Bytes that are no longer held."""
        self.held -= size_bytes
