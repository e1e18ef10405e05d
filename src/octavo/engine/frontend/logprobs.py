"""PositionLogprobs: the logprobs of one position, which also read like vLLM's dict of token id to Logprob."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass

from octavo.step import TokenLogprobs


@dataclass(frozen=True, slots=True)
class Logprob:
    """One candidate at one position: log-softmax of its raw logit, its rank (1 = most likely), its text alone."""

    logprob: float
    rank: int | None
    decoded_token: str


class PositionLogprobs(TokenLogprobs):
    """`token_id, logprob, rank, top_ids, top_logprobs` as the worker made them, and a mapping view with decoded tokens.

    As a mapping the chosen token comes first, then the alternatives by rank; it is made when it is first asked for.
    token_text: token id to text.
    """

    token_text: Callable[[int], str]

    def as_dict(self) -> dict[int, Logprob]:
        entries = {self.token_id: Logprob(self.logprob, self.rank, self.token_text(self.token_id))}
        for index, (token_id, logprob) in enumerate(zip(self.top_ids, self.top_logprobs, strict=True)):
            entries.setdefault(token_id, Logprob(logprob, index + 1, self.token_text(token_id)))
        return entries

    def __getitem__(self, token_id: int) -> Logprob:
        return self.as_dict()[token_id]

    def __contains__(self, token_id: object) -> bool:
        return token_id == self.token_id or token_id in self.top_ids

    def __iter__(self) -> Iterator[int]:
        return iter(self.as_dict())

    def __len__(self) -> int:
        return len(self.top_ids) + (self.token_id not in self.top_ids)

    def get(self, token_id: int, default: Logprob | None = None) -> Logprob | None:
        return self.as_dict().get(token_id, default)

    def keys(self) -> KeysView[int]:
        return self.as_dict().keys()

    def values(self) -> ValuesView[Logprob]:
        return self.as_dict().values()

    def items(self) -> ItemsView[int, Logprob]:
        return self.as_dict().items()


Mapping.register(PositionLogprobs)


def with_text(entries: list[TokenLogprobs], token_text: Callable[[int], str]) -> list[PositionLogprobs]:
    """The same entries with the mapping view."""
    return [
        PositionLogprobs(entry.token_id, entry.logprob, entry.rank, entry.top_ids, entry.top_logprobs, token_text)
        for entry in entries
    ]
