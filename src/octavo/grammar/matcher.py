"""GrammarMatcher: which tokens may come next in one sequence, as bits; a thin owner of llguidance's matcher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from llguidance.numpy import fill_next_token_bitmask
from numpy.typing import NDArray

from octavo.grammar.source import LIMITS

BITS = 32
"""Tokens per word of a mask."""


def mask_words(vocab_size: int) -> int:
    """int32 words of a mask: token i is bit i % 32 of word i // 32."""
    return -(-vocab_size // BITS)


class TokenSource(Protocol):
    """What a vocabulary is made of; text.tokenizer.Tokenizer has it."""

    bos_token_id: int | None
    vocab_size: int

    @property
    def special_token_ids(self) -> frozenset[int]: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def encode(self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True) -> list[int]: ...


class GrammarVocabulary:
    """The tokens of a model as llguidance wants them. Made once; it takes some tenths of a second.

    eos_token_ids   ids that end an answer: allowed where the grammar is complete, and nowhere else
    """

    def __init__(self, tokenizer: TokenSource, eos_token_ids: Sequence[int]) -> None:
        wrapped = TokenizerWrapper(_Adapter(tokenizer, eos_token_ids[0]))
        whole = LLTokenizer(wrapped, n_vocab=tokenizer.vocab_size, eos_token=list(eos_token_ids))
        self.tokenizer = whole.with_slices(LLTokenizer.json_slices())
        self.vocab_size = tokenizer.vocab_size


class _Adapter:
    """The attributes and the call by which llguidance reads a tokenizer."""

    def __init__(self, tokenizer: TokenSource, eos_token_id: int) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = eos_token_id
        self.bos_token_id = tokenizer.bos_token_id
        self.special_token_ids = sorted(tokenizer.special_token_ids)
        self.tokens = [tokenizer.token_bytes(token_id) for token_id in range(tokenizer.vocab_size)]

    def __call__(self, text: bytes) -> list[int]:
        return self._tokenizer.encode(text.decode("utf-8", "replace"), add_special_tokens=False, parse_special=False)


class GrammarMatcher:
    """The state of one answer under a grammar. It is a function of the grammar and the tokens accepted so far.

    source   from `grammar_source`
    Raises ValueError for a grammar beyond the limits; `accept` and `fill_mask` raise it when a limit is met on the way.
    """

    def __init__(self, vocabulary: GrammarVocabulary, source: str) -> None:
        self._matcher = LLMatcher(vocabulary.tokenizer, source, log_level=0, limits=LIMITS)
        self._check()

    def fill_mask(self, masks: NDArray[np.int32], row: int) -> None:
        """Set the bits of the tokens that may come next in masks[row], int32 [words], and clear all others."""
        fill_next_token_bitmask(self._matcher, masks, row)
        self._check()

    def accept(self, token_ids: Sequence[int]) -> None:
        """Move on by tokens that were allowed."""
        if not self._matcher.consume_tokens(list(token_ids)):
            self._check()
            raise ValueError(f"tokens {list(token_ids)} are not in the grammar here")

    @property
    def is_complete(self) -> bool:
        """Whether nothing but the end of the answer may come."""
        return self._matcher.is_stopped()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error())


def forced_token(mask: NDArray[np.int32]) -> int | None:
    """The one token that a mask int32 [words] allows; None if it allows none or several."""
    words = np.flatnonzero(mask)
    if words.size != 1:
        return None
    word = int(mask[words[0]]) & 0xFFFFFFFF
    return int(words[0]) * BITS + word.bit_length() - 1 if word & (word - 1) == 0 else None
