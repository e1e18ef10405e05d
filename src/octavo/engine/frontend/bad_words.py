"""bad_words_ids: texts that must not be generated, as the token ids that the sampler compares with."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.text.tokenizer import Tokenizer


def bad_words_ids(bad_words: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """One list of token ids per spelling: a word within a word, and after a space where that makes another first token.

    As vLLM: the spelling after a space counts when it has as many tokens as the other and begins differently. With more tokens
    it is a space token and then the same word.
    """
    spellings: list[list[int]] = []
    for word in bad_words:
        plain = tokenizer.encode(word, add_special_tokens=False)
        spaced = tokenizer.encode(" " + word.lstrip(), add_special_tokens=False)
        if plain:
            spellings.append(plain)
        if spaced and (not plain or (spaced[0] != plain[0] and len(spaced) == len(plain))):
            spellings.append(spaced)
    return spellings
