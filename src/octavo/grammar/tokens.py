"""TokenTable: the bytes of a model's tokens, as plain values that cross the border to the core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class TokenTable(msgspec.Struct, array_like=True):
    """The tokens of a model, for those who know no tokenizer.

    tokens         by id, what each adds to a text; empty for ids without a token
    special_ids    control tokens: no part of any text
    eos_token_ids  ids that end an answer; at least one
    rules          how texts become tokens, as JSON of the library `tokenizers`; "": there is only one token per byte
    """

    tokens: list[bytes]
    special_ids: list[int]
    eos_token_ids: list[int]
    bos_token_id: int | None = None
    rules: str = ""


class TokenSource(Protocol):
    """What a table is made of; text.tokenizer.Tokenizer has it."""

    bos_token_id: int | None

    @property
    def special_token_ids(self) -> frozenset[int]: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def rules(self) -> str: ...


def token_table(tokenizer: TokenSource, eos_token_ids: Sequence[int], vocab_size: int) -> TokenTable:
    """The table of a model with vocab_size rows of logits; it takes some tenths of a second."""
    return TokenTable(
        [tokenizer.token_bytes(token_id) for token_id in range(vocab_size)],
        sorted(token_id for token_id in tokenizer.special_token_ids if token_id < vocab_size),
        list(eos_token_ids),
        tokenizer.bos_token_id,
        tokenizer.rules(),
    )
