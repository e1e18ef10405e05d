"""The n-gram index finds what a search through all tokens finds, however the tokens came in."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from octavo.scheduler.ngram_index import NgramIndex


def agreeing(tokens: list[int], position: int, most: int) -> int:
    """How many tokens before `position` are those at the end."""
    length, end = 0, len(tokens)
    while length < min(most, position) and tokens[position - length - 1] == tokens[end - length - 1]:
        length += 1
    return length


def searched(tokens: list[int], min_n: int, max_n: int) -> int:
    """By looking at every position; of the sixteen latest places the longest, the latest of equals."""
    places = [p for p in range(min_n, len(tokens)) if agreeing(tokens, p, min_n) == min_n]
    latest = places[:-17:-1]
    lengths = [agreeing(tokens, p, max_n) for p in latest]
    return latest[lengths.index(max(lengths))] if latest else -1


@st.composite
def texts(draw: st.DrawFn) -> tuple[list[list[int]], int, int]:
    """Pieces in which they come in, some long enough for the whole-array way; of few kinds of tokens, so that they repeat."""
    min_n = draw(st.integers(1, 4))
    kinds = draw(st.sampled_from([2, 3, 50, 2**31 - 1]))
    rng = random.Random(draw(st.integers(0, 2**32)))
    sizes = draw(st.lists(st.sampled_from([0, 1, 1, 1, 2, 5, 31, 32, 33, 100, 700]), min_size=1, max_size=8))
    pieces = [[rng.randrange(kinds) for _ in range(size)] for size in sizes]
    if draw(st.booleans()):
        pieces.append(list(pieces[0]))  # the text says it all again
    return pieces, min_n, draw(st.integers(min_n, min_n + 4))


@given(texts())
def test_it_finds_what_a_search_through_all_tokens_finds(text: tuple[list[list[int]], int, int]) -> None:
    pieces, min_n, max_n = text
    index, tokens = NgramIndex(min_n, max_n), list[int]()
    for piece in pieces:
        index.extend(piece)
        tokens += piece
        assert index.tokens.tolist() == tokens
        found, wanted = index.find(), searched(tokens, min_n, max_n)
        assert found == wanted


def test_one_by_one_and_all_at_once_make_the_same_index() -> None:
    rng = random.Random(5)
    tokens = [rng.randrange(40) for _ in range(3000)]
    whole, single = NgramIndex(3, 5), NgramIndex(3, 5)
    whole.extend(tokens)
    for token in tokens:
        single.extend([token])
    for more in ([7], [8, 9], tokens[100:104], tokens[2000:2005]):
        whole.extend(more)
        single.extend(more)
        assert whole.find() == single.find()
    assert whole.find() >= 3


def test_one_search_looks_at_a_bounded_number_of_places() -> None:
    """A text of one token over and over is one long chain."""
    index = NgramIndex(1, 64)
    index.extend([1, 2] * 50_000)
    assert index.find() == 99_998
