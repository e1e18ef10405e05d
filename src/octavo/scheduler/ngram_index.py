"""NgramIndex: where the last tokens of a growing text stood in it before."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]

_MULTIPLIER = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_FIRST_BITS = 10
_BULK = 32
"""From so many new tokens on whole-array operations cost less than a loop."""
_MOST_CANDIDATES = 16
_MOST_VISITED = 64
"""Bounds of one search: places whose tokens are compared, and entries of the chain, other keys of its bucket among them."""


class NgramIndex:
    """Tokens in order; `find` tells where the last min_n of them stood before, in time that does not grow with their number.

    A hash of the min_n tokens before each position leads to the latest such position, and from there to the earlier ones:

        heads [2**bits]   bucket -> latest position behind an n-gram of that bucket; -1: none
        previous [tokens] position -> the one before it in its bucket; -1: none

    Memory: 4 bytes for a token, 4 for its link, 8 to 16 for the buckets.
    """

    def __init__(self, min_n: int, max_n: int) -> None:
        """min_n: tokens that must agree, at least 1; max_n: beyond so many a place is no better, at least min_n."""
        self.tokens = array("i")
        self._min_n = min_n
        self._max_n = max_n
        self._previous = array("i")
        self._key, self._key_of = 0, -1
        """The hash of the last search, and the position that it is of."""
        self._bits = _FIRST_BITS
        self._heads = array("i", [-1]) * (1 << _FIRST_BITS)

    def __len__(self) -> int:
        return len(self.tokens)

    def extend(self, token_ids: Sequence[int]) -> None:
        """Put tokens behind those that are there. The ids fit 31 bits."""
        tokens, previous, n = self.tokens, self._previous, self._min_n
        if len(tokens) + len(token_ids) > len(self._heads) >> 1:
            self._widen(len(tokens) + len(token_ids))
        if len(token_ids) >= _BULK:
            self._extend_by_many(token_ids)
            return
        heads, shift = self._heads, 64 - self._bits
        for token_id in token_ids:
            position = len(tokens)
            tokens.append(token_id)
            if position < n:
                previous.append(-1)
                continue
            key = self._key if position == self._key_of else _hash(tokens[position - n : position])
            bucket = key >> shift
            previous.append(heads[bucket])
            heads[bucket] = position

    def find(self) -> int:
        """The position behind the place where most of the last tokens stood before, the latest of equals; -1: there is none."""
        tokens, n = self.tokens, self._min_n
        end = len(tokens)
        if end <= n:
            return -1
        suffix = tokens[end - n :]
        self._key, self._key_of = _hash(suffix), end  # the next token is entered under it
        position = self._heads[self._key >> (64 - self._bits)]
        best, best_length, num_candidates = -1, 0, 0
        for _ in range(_MOST_VISITED):
            if position < 0 or num_candidates == _MOST_CANDIDATES:
                break
            if tokens[position - n : position] == suffix:
                num_candidates += 1
                length = self._agreeing(position, end)
                if length > best_length:
                    best, best_length = position, length
                if length == self._max_n:
                    break
            position = self._previous[position]
        return best

    def _agreeing(self, position: int, end: int) -> int:
        """How many tokens before `position` are those before `end`: min_n to max_n."""
        tokens, length = self.tokens, self._min_n
        most = min(self._max_n, position)
        while length < most and tokens[position - length - 1] == tokens[end - length - 1]:
            length += 1
        return length

    def _widen(self, num_tokens: int) -> None:
        """More buckets. Chains stay as they are: equal keys had a bucket in common before, so none of them is lost."""
        while num_tokens > 1 << (self._bits - 1):
            self._bits += 1
        self._heads = array("i", [-1]) * (1 << self._bits)
        first = self._min_n
        if len(self.tokens) > first:
            # Of several values for one place numpy keeps the last, which is the latest position here.
            np.frombuffer(self._heads, np.int32)[self._buckets(first)] = np.arange(first, len(self.tokens), dtype=np.int32)

    def _extend_by_many(self, token_ids: Sequence[int]) -> None:
        start = len(self.tokens)
        self.tokens.extend(token_ids)
        first = max(self._min_n, start)
        self._previous.extend([-1] * (min(first, len(self.tokens)) - start))
        if first >= len(self.tokens):
            return
        buckets = self._buckets(first)
        order = np.argsort(buckets, kind="stable").astype(np.int32)
        is_first = np.empty(len(order), bool)
        is_first[0] = True
        np.not_equal(buckets[order[1:]], buckets[order[:-1]], out=is_first[1:])
        heads = np.frombuffer(self._heads, np.int32)
        links = np.empty(len(order), np.int32)
        links[order[1:]] = order[:-1] + first
        firsts = order[is_first]
        links[firsts] = heads[buckets[firsts]]
        heads[buckets[order]] = order + first
        self._previous.frombytes(links.tobytes())

    def _buckets(self, first: int) -> I64:
        """Of the n-grams before positions `first` to the last one. Shape: int64 [len - first]."""
        n, count = self._min_n, len(self.tokens) - first
        tokens = np.frombuffer(self.tokens[first - n :], np.int32).astype(np.uint64)
        key = np.zeros(count, np.uint64)
        for offset in range(n):
            key = (key + tokens[offset : offset + count] + np.uint64(1)) * np.uint64(_MULTIPLIER)
        buckets: I64 = (key >> np.uint64(64 - self._bits)).astype(np.int64)
        return buckets


def _hash(token_ids: Sequence[int]) -> int:
    """64 bits, of which the high ones are the good ones."""
    key = 0
    for token_id in token_ids:
        key = (key + token_id + 1) * _MULTIPLIER & _MASK
    return key
