"""Drafter: whoever guesses the next tokens of a sequence, so that one step can verify several."""

from __future__ import annotations

from typing import Protocol

from octavo.sequence import Sequence


class Drafter(Protocol):
    """A guess changes how many steps an answer takes, never a token of it."""

    def propose(self, sequence: Sequence, limit: int) -> list[int]:
        """At most `limit` ids of the vocabulary, likely to follow the sequence's last token; none if nothing is likely."""
