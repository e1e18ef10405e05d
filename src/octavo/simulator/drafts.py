"""Guesses in a simulation: no text is there to guess from, so a guess is right with a given chance, place by place."""

from __future__ import annotations

from octavo.sequence import Sequence
from octavo.step import SampledTokens, ScheduledSequence

_OTHER_TOKEN = 2**30
"""Added to a sequence's own token where the guess is wrong."""
_MIX = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class ChanceGuesser:
    """Always guesses the sequence's own token."""

    def __init__(self, own_token: int) -> None:
        self._own_token = own_token

    def guess(self, limit: int) -> list[int]:
        return [self._own_token] * limit

    def confirm(self, num_right: int, num_gained: int) -> None:
        """Nothing to be learned from it."""


def sampled_tokens(sequence: Sequence, share: ScheduledSequence, own_token: int, chance: float) -> SampledTokens:
    """What a worker would sample: the sequence's own token where the guess of that place is right, else another one.

    Whether it is right is a function of sequence and place, so that runs of the same trace are the same.
    """
    place, token_ids = len(sequence.output_token_ids), list[int]()
    for guessed in [*share.draft_token_ids, None]:
        token_id = own_token if _drawn(sequence.seq_id, place + len(token_ids)) < chance else own_token + _OTHER_TOKEN
        token_ids.append(token_id)
        if token_id != guessed:
            break
    return SampledTokens(share.seq_id, token_ids, num_accepted=len(token_ids) - 1)


def _drawn(seq_id: int, place: int) -> float:
    """Evenly from [0, 1)."""
    mixed = (seq_id * 0x2545F4914F6CDD1D + place + 1) * _MIX & _MASK
    mixed = (mixed ^ mixed >> 29) * _MIX & _MASK
    return (mixed >> 11) / (1 << 53)
