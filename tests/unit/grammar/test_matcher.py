"""Masks are the tokens that may come next; a forced token is found; limits and wrong tokens are errors of this answer alone."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.fakes import EOS, byte_tokenizer

from octavo.grammar.matcher import GrammarMatcher, GrammarVocabulary, forced_token, mask_words
from octavo.grammar.source import grammar_source
from octavo.grammar.tokens import token_table
from octavo.structured_outputs import StructuredOutputsParams

TOKENIZER = byte_tokenizer()
VOCABULARY = GrammarVocabulary(token_table(TOKENIZER, [EOS], TOKENIZER.vocab_size))


def matcher(**fields: object) -> GrammarMatcher:
    source = grammar_source(StructuredOutputsParams(**fields))  # type: ignore[arg-type]
    assert source is not None
    return GrammarMatcher(VOCABULARY, source)


def masks(count: int = 1) -> NDArray[np.int32]:
    return np.full((count, mask_words(TOKENIZER.vocab_size)), -1, np.int32)


def allowed(row: NDArray[np.int32]) -> set[int]:
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")[: TOKENIZER.vocab_size]
    return set(np.flatnonzero(bits).tolist())


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


def test_a_mask_holds_the_tokens_that_may_come_next() -> None:
    answer, rows = matcher(choice=["red", "rose", "blue"]), masks(2)
    answer.fill_mask(rows[1])
    assert allowed(rows[1]) == {ids("r")[0], ids("b")[0]}
    assert (rows[0] == -1).all(), "another row was written"
    answer.accept(ids("ro"))
    answer.fill_mask(rows[1])
    assert forced_token(rows[1]) == ids("s")[0]


def test_the_end_is_allowed_where_the_answer_is_complete_and_nowhere_else() -> None:
    answer, rows = matcher(regex="ab?"), masks()
    answer.fill_mask(rows[0])
    assert EOS not in allowed(rows[0])
    answer.accept(ids("a"))
    answer.fill_mask(rows[0])
    assert allowed(rows[0]) == {EOS, ids("b")[0]}
    answer.accept(ids("b"))
    answer.fill_mask(rows[0])
    assert forced_token(rows[0]) == EOS


def test_the_state_is_a_function_of_the_tokens_accepted() -> None:
    one, two, rows = matcher(json_object=True), matcher(json_object=True), masks(2)
    text = ids('{"a": [1, ')
    one.accept(text)
    for token in text:
        two.fill_mask(rows[1])
        two.accept([token])
    one.fill_mask(rows[0])
    two.fill_mask(rows[1])
    assert (rows[0] == rows[1]).all() and allowed(rows[0])


def test_a_token_outside_the_grammar_is_an_error() -> None:
    with pytest.raises(ValueError):
        matcher(choice=["red"]).accept(ids("x"))


@pytest.mark.parametrize(
    ("bits", "found"), [([], None), ([0], 0), ([31], 31), ([32], 32), ([63], 63), ([3, 40], None), ([3, 4], None)]
)
def test_forced_token(bits: list[int], found: int | None) -> None:
    row = np.zeros(2, np.int32)
    view = row.view(np.uint32)
    for bit in bits:
        view[bit // 32] |= np.uint32(1 << bit % 32)
    assert forced_token(row) == found
