"""Drafter: whoever guesses the next tokens of a sequence, so that one step can verify several."""

from __future__ import annotations

from typing import Protocol

from octavo.scheduler.budget import StepBudget
from octavo.sequence import Sequence

NO_DRAFTS: list[int] = []
"""Shared by all shares without drafts, never modified."""


class Drafter(Protocol):
    """A guess changes how many steps an answer takes, never a token of it."""

    def propose(self, sequence: Sequence, limit: int) -> list[int]:
        """At most `limit` ids of the vocabulary, likely to follow the sequence's last token; none if nothing is likely."""


def drafts_of(drafter: Drafter, sequence: Sequence, num_new: int, budget: StepBudget, max_model_len: int) -> list[int]:
    """Guesses to verify behind num_new known tokens, no more than could become tokens of the answer."""
    if sequence.num_computed + num_new < sequence.num_tokens:
        return []
    num_left = sequence.request.max_tokens - len(sequence.output_token_ids)
    limit = min(budget.num_drafts(num_new), num_left - 1, max_model_len - sequence.num_tokens - 1)
    return drafter.propose(sequence, limit)[:limit] if limit > 0 else []
