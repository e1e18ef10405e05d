"""bad_words_ids: the spellings of vLLM, alone and after a space."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from octavo.engine.frontend.bad_words import bad_words_ids
from octavo.text.tokenizer import Tokenizer, TokenizerSpec

VOCAB = {"Ġ": 0, "a": 1, "b": 2, "c": 3, "ab": 4, "Ġa": 5, "Ġab": 6}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    backend = Backend(models.BPE(vocab=VOCAB, merges=[("a", "b"), ("Ġ", "a"), ("Ġ", "ab")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend, TokenizerSpec(source="test", bos_token_id=0, prefix_ids=(0,)))


def test_a_word_has_two_spellings_where_the_space_makes_another_token(tokenizer: Tokenizer) -> None:
    assert bad_words_ids(["ab"], tokenizer) == [[4], [6]]
    assert bad_words_ids(["abc"], tokenizer) == [[4, 3], [6, 3]]


def test_a_space_token_before_the_same_word_is_no_spelling_of_its_own(tokenizer: Tokenizer) -> None:
    assert bad_words_ids(["cb"], tokenizer) == [[3, 2]]


def test_a_word_given_with_its_space_is_one_spelling(tokenizer: Tokenizer) -> None:
    assert bad_words_ids([" ab"], tokenizer) == [[6]]


def test_words_stay_in_order_and_none_gives_none(tokenizer: Tokenizer) -> None:
    assert bad_words_ids(["cb", "ab"], tokenizer) == [[3, 2], [4], [6]]
    assert bad_words_ids([], tokenizer) == []
