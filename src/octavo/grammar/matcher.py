"""GrammarMatcher: which tokens may come next in one answer, as bits; a thin owner of llguidance's matcher."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from llguidance.numpy import fill_next_token_bitmask
from numpy.typing import NDArray

from octavo.grammar.source import LIMITS, NO_WAY_ON
from octavo.grammar.speller import Speller
from octavo.grammar.tokens import TokenTable

BITS = 32
"""Tokens per word of a mask."""


def mask_words(vocab_size: int) -> int:
    """int32 words of a mask: token i is bit i % 32 of word i // 32."""
    return -(-vocab_size // BITS)


def mask_of(token_ids: Sequence[int], vocab_size: int) -> NDArray[np.int32]:
    """The mask, int32 [words], that allows these tokens and no others."""
    bits = np.zeros(mask_words(vocab_size) * BITS, np.uint8)
    bits[list(token_ids)] = 1
    return np.packbits(bits, bitorder="little").view("<i4").astype(np.int32, copy=False)


class GrammarVocabulary:
    """The tokens of a model as llguidance wants them. To make it takes some tenths of a second, and holds up Python meanwhile.

    The ids in eos_token_ids of the table are allowed where the grammar is complete, and nowhere else; where nothing else may
    come, the first of them.
    """

    def __init__(self, table: TokenTable) -> None:
        wrapped = TokenizerWrapper(_Adapter(table))
        slices = LLTokenizer.json_slices()
        self.tokenizer = LLTokenizer(wrapped, n_vocab=len(table.tokens), eos_token=table.eos_token_ids, slices=slices)
        self.vocab_size = len(table.tokens)
        self.end = table.eos_token_ids[0]
        self.end_mask = mask_of([self.end], self.vocab_size)


class _Adapter:
    """The attributes by which llguidance reads a tokenizer."""

    def __init__(self, table: TokenTable) -> None:
        self.eos_token_id = table.eos_token_ids[0]
        self.bos_token_id = table.bos_token_id
        self.special_token_ids = table.special_ids
        self.tokens = table.tokens
        self._speller = Speller(table)

    def __call__(self, text: bytes) -> list[int]:
        return self._speller.spell(text)


class GrammarMatcher:
    """The state of one answer under a grammar. It is a function of the grammar and the tokens accepted so far.

    Where the grammar leaves one text only, the mask leaves one token: that with which the model's tokenizer spells it, unless
    what follows may change the spelling. Grammars of `free_spelling` leave every spelling to the model.

    source        from `grammar_source`
    num_accepted  tokens of the answer that it has moved on by
    Raises ValueError for a grammar beyond the limits; `accept` and `fill_mask` raise it when a limit is met on the way.
    """

    def __init__(self, vocabulary: GrammarVocabulary, source: str) -> None:
        self._vocabulary = vocabulary
        self._matcher = LLMatcher(vocabulary.tokenizer, source, log_level=0, limits=LIMITS)
        self.num_accepted = 0
        self._check()

    def copy(self) -> GrammarMatcher:
        """One in the same state that goes its own way."""
        copied = object.__new__(GrammarMatcher)
        copied._vocabulary = self._vocabulary
        copied._matcher, copied.num_accepted = self._matcher.deep_copy(), self.num_accepted
        return copied

    def fill_mask(self, mask: NDArray[np.int32]) -> None:
        """Set the bits of the tokens that may come next in mask, int32 [words], and clear all others."""
        if self.is_complete:
            self._check()
            mask[:] = self._vocabulary.end_mask
            return
        fill_next_token_bitmask(self._matcher, mask[None], 0)
        self._check()

    def forced_token(self) -> int | None:
        """The one token of the mask, without making the mask: of forced text, and of the end. None: look at the mask."""
        if self.is_complete:
            self._check()
            return self._vocabulary.end
        forced: list[int] = self._matcher.compute_ff_tokens()
        self._check()
        return forced[0] if forced else None

    def accept(self, token_ids: Sequence[int]) -> None:
        """Move on by tokens that were allowed."""
        if not token_ids:
            return
        if not self._matcher.consume_tokens(list(token_ids)):
            self._check()
            raise ValueError(f"tokens {list(token_ids)[:20]} are not in the grammar here")
        self.num_accepted += len(token_ids)

    def try_accept(self, token_id: int) -> bool:
        """Move on by a token if it is allowed."""
        is_allowed = self._matcher.try_consume_tokens([token_id]) == 1
        self.num_accepted += is_allowed
        return is_allowed

    @property
    def is_complete(self) -> bool:
        """Whether nothing but the end of the answer may come."""
        return bool(self._matcher.is_stopped())

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ValueError(_reason(self._matcher.get_error()))


def _reason(message: str) -> str:
    """The library's message in one line, or in other words where it has but a name for it."""
    if NO_WAY_ON in message:
        return "no text can go on from here; look for a part of it that refers to itself without an end, or that allows nothing"
    return " ".join(message.replace("<non-verbose/>", "").split())


def forced_token(mask: NDArray[np.int32]) -> int | None:
    """The one token that a mask int32 [words] allows; None if it allows none or several."""
    words = np.flatnonzero(mask)
    if words.size != 1:
        return None
    word = int(mask[words[0]]) & 0xFFFFFFFF
    return int(words[0]) * BITS + word.bit_length() - 1 if word & (word - 1) == 0 else None
