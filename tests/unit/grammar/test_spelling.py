"""Forced text is spelled as the tokenizer spells it; long texts and those of `free_spelling` are the model's to spell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.fakes import EOS, byte_tokenizer

from octavo.grammar.matcher import GrammarMatcher, GrammarVocabulary, forced_token, mask_of, mask_words
from octavo.grammar.source import grammar_source
from octavo.grammar.speller import MAX_CHARACTERS, Speller
from octavo.grammar.spelling import free_spelling, has_long_texts
from octavo.grammar.tokens import TokenTable, token_table
from octavo.structured_outputs import StructuredOutputsParams
from octavo.text.load import load_tokenizer
from octavo.text.tokenizer import Tokenizer

TEXTS = ['{"age of the person": ', '", "name": "', "\u4e2d na\u00efve \U0001f937", " two  blanks", "<|im_end|>", "\n\n\tx", "a"]


@pytest.fixture(scope="module")
def tokenizer(smollm2_gguf: Path) -> Tokenizer:
    return load_tokenizer(smollm2_gguf)


@pytest.fixture(scope="module")
def table(tokenizer: Tokenizer) -> TokenTable:
    return token_table(tokenizer, tokenizer.eos_token_ids, tokenizer.vocab_size)


@pytest.fixture(scope="module")
def vocabulary(table: TokenTable) -> GrammarVocabulary:
    return GrammarVocabulary(table)


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_has_the_tokens_of_the_tokenizer(tokenizer: Tokenizer, table: TokenTable, text: str) -> None:
    plain = tokenizer.encode(text, add_special_tokens=False, parse_special=False)
    assert Speller(table).spell(text.encode()) == plain


def test_of_a_long_text_the_beginning_is_spelled_as_in_the_whole(tokenizer: Tokenizer, table: TokenTable) -> None:
    text = "the quick brown fox jumps, " * 100
    head = Speller(table).spell(text.encode())
    assert 0 < len(head) < MAX_CHARACTERS and tokenizer.encode(text, add_special_tokens=False)[: len(head)] == head


@pytest.mark.parametrize("text", TEXTS)
def test_without_rules_the_longest_tokens_are_taken(table: TokenTable, text: str) -> None:
    ids = Speller(TokenTable(table.tokens, table.special_ids, table.eos_token_ids)).spell(text.encode())
    assert b"".join(table.tokens[i] for i in ids) == text.encode() and not set(ids) & set(table.special_ids)


def test_rules_that_change_a_text_are_not_asked() -> None:
    rules = """{"version": "1.0", "normalizer": {"type": "Lowercase"}, "pre_tokenizer": null, "post_processor": null,
        "decoder": null, "truncation": null, "padding": null, "added_tokens": [],
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}}"""
    speller = Speller(TokenTable([b"a", b"b", b"ab", b"A", b""], [], [4], rules=rules))
    assert speller.spell(b"ab") == [2] and speller.spell(b"Ab") == [3, 1] and speller.spell(b"?b") == [1]


def test_a_forced_token_is_the_one_of_its_mask(vocabulary: GrammarVocabulary) -> None:
    """At every place of an answer, whether the matcher came there step by step or at once."""
    schema = {"const": {"a long property name": [1, True, "fixed text"], "b": None}}
    source = grammar_source(StructuredOutputsParams(json=schema, whitespace_pattern="[ ]?"))
    assert source is not None
    walking, num_forced = GrammarMatcher(vocabulary, source), 0
    written: list[int] = []
    mask, again = np.zeros((2, mask_words(vocabulary.vocab_size)), np.int32)
    rng = np.random.default_rng(3)
    while not walking.is_complete:
        forced = walking.forced_token()
        walking.fill_mask(mask)
        jumping = GrammarMatcher(vocabulary, source)
        jumping.accept(written)
        jumping.fill_mask(again)
        assert (mask == again).all() and forced in (None, forced_token(mask))
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        written.append(int(rng.choice(allowed)) if forced is None else forced)
        num_forced += forced is not None
        walking.accept(written[-1:])
    assert num_forced > 5 and walking.forced_token() == vocabulary.end


def test_free_spelling_forces_nothing(vocabulary: GrammarVocabulary) -> None:
    source = grammar_source(StructuredOutputsParams(regex="something that is fixed"))
    assert source is not None
    assert GrammarMatcher(vocabulary, source).forced_token() is not None
    free = GrammarMatcher(vocabulary, free_spelling(free_spelling(source)))
    mask = np.zeros(mask_words(vocabulary.vocab_size), np.int32)
    free.fill_mask(mask)
    assert free.forced_token() is None and forced_token(mask) is None and mask.any()


@pytest.mark.parametrize(
    "form",
    [
        {"json": {"const": "x" * 5000}},
        {"regex": "a{5000}"},
        {"regex": "((a{60}){60}){60}"},
        {"json": {"minItems": 70, "items": {"minItems": 70, "items": {"const": 1}, "type": "array"}, "type": "array"}},
    ],
)
def test_what_forces_long_texts_is_spelled_freely(form: dict[str, object]) -> None:
    source = grammar_source(StructuredOutputsParams(**form))  # type: ignore[arg-type]
    assert source is not None and has_long_texts(source) and source == free_spelling(source)


def test_of_several_ends_the_first_ends_a_whole_answer() -> None:
    tokenizer = byte_tokenizer()
    source = grammar_source(StructuredOutputsParams(regex="ab?"))
    assert source is not None
    answer = GrammarMatcher(GrammarVocabulary(token_table(tokenizer, [EOS, EOS - 1], tokenizer.vocab_size)), source)
    mask = np.zeros(mask_words(tokenizer.vocab_size), np.int32)
    for text, expected in (("a", {EOS, EOS - 1, *tokenizer.encode("b", add_special_tokens=False)}), ("b", {EOS})):
        answer.accept(tokenizer.encode(text, add_special_tokens=False))
        answer.fill_mask(mask)
        assert set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()) == expected
    assert answer.is_complete and answer.forced_token() == EOS


def test_a_mask_of_ids() -> None:
    mask = mask_of([0, 31, 32, 70], 71)
    assert np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist() == [0, 31, 32, 70]
    assert mask.dtype == np.int32 and mask.shape == (3,)
