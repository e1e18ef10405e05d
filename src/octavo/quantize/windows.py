"""Windows: a long text cut into pieces that fit the context, each token scored once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """One forward pass over a piece of text.

    token_ids      BOS, where the model wants one, and the piece
    first_scored   position of the first token whose probability counts; it and all after it do
    """

    token_ids: list[int]
    first_scored: int

    @property
    def num_scored(self) -> int:
        return len(self.token_ids) - self.first_scored


def cut_windows(token_ids: Sequence[int], context: int, stride: int, prefix_ids: Sequence[int] = ()) -> list[Window]:
    """Windows of at most `context` tokens, each `stride` text tokens after the last; every text token is scored once.

    A window begins with prefix_ids and then repeats the end of the last one, so that from the second window on a scored token
    has at least context - stride tokens before it. Without a prefix the text's first token is not scored: nothing predicts it.
    1 <= stride < context and, with a prefix, stride <= context - len(prefix_ids).
    """
    size = context - len(prefix_ids)
    assert 1 <= stride <= size - (0 if prefix_ids else 1), "the stride must not pass over tokens"
    windows: list[Window] = []
    scored_up_to = 0 if prefix_ids else 1
    for start in range(0, len(token_ids), stride):
        piece = token_ids[start : start + size]
        end = start + len(piece)
        if end > scored_up_to:
            windows.append(Window([*prefix_ids, *piece], len(prefix_ids) + scored_up_to - start))
            scored_up_to = end
        if end == len(token_ids):
            break
    return windows
