"""Drafter: whoever guesses the next tokens of a sequence, so that one step can verify several."""

from __future__ import annotations

from typing import Protocol

from octavo.sequence import Sequence

NO_DRAFTS: list[int] = []
"""Shared by all shares without drafts, never modified."""


class Drafter(Protocol):
    """A guess changes how many steps an answer takes, never a token of it."""

    def propose(self, sequence: Sequence, limit: int) -> list[int]:
        """At most `limit` ids of the vocabulary, likely to follow the sequence's last token; none if nothing is likely."""


class Guesser(Protocol):
    """Guesses for one sequence, by what the sequence holds so far; it is told what came of each."""

    def guess(self, limit: int) -> list[int]:
        """At most `limit` tokens, likely to follow the last one; none if nothing is likely."""

    def confirm(self, num_right: int, num_gained: int) -> None:
        """Of the last guess the first num_right tokens came true; the sequence gained num_gained tokens since."""
