"""OutputLengths: how many tokens an answer will have, from those that ended before it."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict, deque

from octavo.sequence import Sequence

UNKNOWN_LENGTH = 256
"""Tokens expected of an answer while no history says better."""
MIN_HISTORY = 8
"""Fewer ended answers than this say nothing about the next one."""
_WINDOW = 64
_MAX_CLASSES = 4096


class _Window:
    """The last _WINDOW lengths, in order of arrival and in order of size."""

    __slots__ = ("_recent", "sizes")

    def __init__(self) -> None:
        self._recent: deque[int] = deque()
        self.sizes: list[int] = []

    def add(self, length: int) -> None:
        if len(self._recent) == _WINDOW:
            oldest = self._recent.popleft()
            del self.sizes[bisect_right(self.sizes, oldest) - 1]
        self._recent.append(length)
        insort(self.sizes, length)


class OutputLengths:
    """Running quantiles of answer lengths per class of request: its tenant and the power of two of its max_tokens.

    A tenant with too little history of its own is judged by that of all tenants. The least recently used classes are forgotten
    when there are more than a few thousand, so that nobody can fill the memory with invented tenants.
    """

    def __init__(self) -> None:
        self._classes: OrderedDict[tuple[str | None, int], _Window] = OrderedDict()

    def observe(self, sequence: Sequence) -> None:
        """A sequence came to its own end (not aborted, not failed)."""
        for tenant in (sequence.request.tenant, None):
            key = (tenant, sequence.request.max_tokens.bit_length())
            window = self._classes.get(key)
            if window is None:
                window = self._classes[key] = _Window()
                if len(self._classes) > _MAX_CLASSES:
                    self._classes.popitem(last=False)
            self._classes.move_to_end(key)
            window.add(len(sequence.output_token_ids))

    def quantile(self, sequence: Sequence, share: float) -> int | None:
        """The length that `share` of the answers in its class stay within, of those longer than what it has now.

        At least one more than its tokens now, at most max_tokens. None: there is too little history.
        """
        sizes = self._history(sequence)
        if sizes is None:
            return None
        produced = len(sequence.output_token_ids)
        shorter = bisect_right(sizes, produced)
        if shorter == len(sizes):
            # Longer than any before it: nothing known but that it is a long one. Half of what it has may still come.
            return min(sequence.request.max_tokens, produced + max(1, produced // 2))
        length = sizes[shorter + int((len(sizes) - 1 - shorter) * share)]
        return min(sequence.request.max_tokens, length)

    def expected(self, sequence: Sequence) -> int:
        """Median length it will have at its end, its tokens now included; without history UNKNOWN_LENGTH more or max_tokens."""
        known = self.quantile(sequence, 0.5)
        if known is not None:
            return known
        produced = len(sequence.output_token_ids)
        return min(sequence.request.max_tokens, max(UNKNOWN_LENGTH, produced + max(1, produced // 2)))

    def _history(self, sequence: Sequence) -> list[int] | None:
        bucket = sequence.request.max_tokens.bit_length()
        for tenant in (sequence.request.tenant, None):
            window = self._classes.get((tenant, bucket))
            if window is not None and len(window.sizes) >= MIN_HISTORY:
                return window.sizes
        return None
