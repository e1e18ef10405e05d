"""Merge rules of a SentencePiece BPE vocabulary, recovered from its pieces and scores."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]

_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 2**64)


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def merges_from_scores(tokens: Sequence[str], types: Sequence[int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """All ways to join two pieces into a third, best first: what SentencePiece's BPE does by looking at scores.

    User-defined pieces come before all others, in file order: SentencePiece never splits them (their stored score means
    nothing). Control and byte tokens take no part, so no plain text can merge into one. Pairs that make the same piece are
    ordered longest left part first, as transformers orders them.

    Every cut of every piece is looked up by the hash of both halves, in numpy, and pairs are made of the strings in `tokens`:
    large vocabularies are read faster than with string slices, and without their memory.
    Twin: plain_merges_from_scores.
    """
    order = _piece_order(types, scores)
    if not len(order):
        return []
    pieces = [tokens[i] for i in order.tolist()]
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    ends = np.cumsum(lengths)
    starts = ends - lengths
    characters = np.frombuffer("".join(pieces).encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint64)
    # prefix[i] - prefix[start] hashes the characters start..i of a piece, as a polynomial in _BASE modulo 2**64.
    place_in_piece = np.arange(len(characters)) - np.repeat(starts, lengths)
    powers = _powers(_BASE, int(lengths.max()))
    prefix = np.concatenate([np.zeros(1, np.uint64), np.cumsum(characters * powers[place_in_piece], dtype=np.uint64)])
    by_hash = prefix[ends] - prefix[starts]
    ranks = np.argsort(by_hash, kind="stable")
    sorted_hashes = by_hash[ranks]

    # One row per cut: piece 0 cut at length - 1 .. 1, then piece 1, ...
    num_cuts = np.maximum(lengths - 1, 0)
    piece = np.repeat(np.arange(len(pieces)), num_cuts)
    cut = np.repeat(np.cumsum(num_cuts), num_cuts) - np.arange(len(piece))
    at = starts[piece] + cut
    left = _find(prefix[at] - prefix[starts[piece]], sorted_hashes, ranks)
    kept = np.flatnonzero((left >= 0) & (lengths[left] == cut))
    piece, cut, at, left = piece[kept], cut[kept], at[kept], left[kept]
    right_hash = (prefix[ends[piece]] - prefix[at]) * _powers(_INVERSE, int(lengths.max()))[cut]
    right = _find(right_hash, sorted_hashes, ranks)
    kept = np.flatnonzero((right >= 0) & (lengths[right] == lengths[piece] - cut))
    text = pieces.__getitem__
    return list(zip(map(text, left[kept].tolist()), map(text, right[kept].tolist()), strict=True))


def plain_merges_from_scores(tokens: Sequence[str], types: Sequence[int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """The same by string slices."""
    ordered = [tokens[i] for i in _piece_order(types, scores).tolist()]
    known = set(ordered)
    return [
        (token[:cut], token[cut:])
        for token in ordered
        for cut in range(len(token) - 1, 0, -1)
        if token[:cut] in known and token[cut:] in known
    ]


def _piece_order(types: Sequence[int], scores: Sequence[float]) -> I64:
    """Indices of the pieces that merges are made of, most urgent first."""
    kinds = np.asarray(types)
    user_defined = np.flatnonzero(kinds == TokenType.USER_DEFINED)
    normal = np.flatnonzero(kinds == TokenType.NORMAL)
    by_score = np.argsort(-np.asarray(scores, dtype=np.float64)[normal], kind="stable")
    return np.concatenate([user_defined, normal[by_score]])


def _powers(base: int, count: int) -> U64:
    """base ** 0 .. base ** count, modulo 2 ** 64."""
    return np.concatenate([np.ones(1, np.uint64), np.cumprod(np.full(count, base, np.uint64), dtype=np.uint64)])


def _find(hashes: U64, sorted_hashes: U64, ranks: I64) -> I64:
    """Index of the piece with each hash, -1 where there is none."""
    place = np.minimum(np.searchsorted(sorted_hashes, hashes), len(sorted_hashes) - 1)
    found: I64 = np.where(sorted_hashes[place] == hashes, ranks[place], -1)
    return found
