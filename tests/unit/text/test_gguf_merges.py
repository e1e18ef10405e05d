"""Merge rules from scores: their order, and equality of the fast and the plain way."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.loader.gguf import GgufFile
from octavo.text.gguf_merges import merges_from_scores, plain_merges_from_scores


def test_merges_follow_scores_and_user_defined_pieces_come_first() -> None:
    tokens = ["a", "b", "ab", "aba", "<s>", "bb", "aa"]
    types = [1, 1, 1, 1, 3, 4, 1]
    scores = [0.0, 0.0, -2.0, -3.0, 0.0, -1000.0, -1.0]
    assert merges_from_scores(tokens, types, scores) == [("b", "b"), ("a", "a"), ("a", "b"), ("ab", "a")]


def test_a_vocabulary_without_pieces_has_no_merges() -> None:
    assert merges_from_scores(["<s>"], [3], [0.0]) == []


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(alphabet="ab\u2581中🤷", max_size=6), unique=True, min_size=1, max_size=40), st.data())
def test_the_fast_way_equals_the_plain_way(tokens: list[str], data: st.DataObject) -> None:
    size = len(tokens)
    types = data.draw(st.lists(st.sampled_from([1, 1, 1, 3, 4, 6]), min_size=size, max_size=size))
    scores = data.draw(st.lists(st.sampled_from([0.0, -1.0, -2.5, -1000.0]), min_size=size, max_size=size))
    assert merges_from_scores(tokens, types, scores) == plain_merges_from_scores(tokens, types, scores)


def test_the_fast_way_equals_the_plain_way_on_gemma3(gemma3_gguf: Path) -> None:
    metadata = GgufFile(gemma3_gguf).metadata
    arrays = [metadata[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type", "scores")]
    fast = merges_from_scores(*arrays)  # type: ignore[arg-type]
    assert len(fast) > 500_000
    assert fast == plain_merges_from_scores(*arrays)  # type: ignore[arg-type]
