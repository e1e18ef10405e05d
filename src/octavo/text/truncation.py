"""Truncation: a prompt cut to a number of tokens, where a request asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from octavo.errors import InvalidRequestError

MAX_TRUNCATED = 65536
"""Most tokens of a prompt that is to be cut, where the context is shorter: a second of work."""

Side = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class Truncation:
    """num_tokens are kept at most; side "left" drops the beginning of the prompt, "right" its end."""

    num_tokens: int
    side: Side = "left"

    @classmethod
    def asked(cls, asked: int, side: Side, max_model_len: int, max_tokens: int | None) -> Truncation:
        """truncate_prompt_tokens as in vLLM: -1 keeps what the context leaves beside an answer of max_tokens (None: of one).

        Raises InvalidRequestError for a number out of range.
        """
        if asked == -1:
            return cls(max(1, max_model_len - max(1, max_tokens or 1)), side)
        if not 1 <= asked <= max_model_len:
            raise InvalidRequestError(
                f"truncate_prompt_tokens is {asked}; it must be 1 to {max_model_len}, the length of the context, or -1 for what"
                " it leaves",
                param="truncate_prompt_tokens",
            )
        return cls(asked, side)

    def cut(self, token_ids: list[int], prefix: Sequence[int] = ()) -> list[int]:
        """The ids that are kept. A prefix (the BOS that a model wants) with which they begin stays."""
        if len(token_ids) <= self.num_tokens:
            return token_ids
        if self.side == "right":
            return token_ids[: self.num_tokens]
        kept = list(prefix) if len(prefix) < self.num_tokens and token_ids[: len(prefix)] == list(prefix) else []
        return kept + token_ids[len(token_ids) - self.num_tokens + len(kept) :]
