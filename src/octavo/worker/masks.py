"""Masks: the tokens that the grammars of a step's sequences allow. They are computed while the device computes the logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from octavo.grammar.matcher import BITS, GrammarMatcher, mask_words
from octavo.ops.interface import I32
from octavo.worker.batch import Batch, ResidentSequence, Segment

NO_MASKS: I32 = np.zeros((0, 0), np.int32)


def leaves_any(mask: I32, token_ids: Sequence[int]) -> bool:
    """Whether a mask int32 [words] allows any token besides these."""
    words = mask.view(np.uint32).copy()
    for token_id in token_ids:
        words[token_id // BITS] &= ~np.uint32(1 << token_id % BITS)
    return bool(words.any())


class Masks:
    """The masks of one forward pass, a row for each row of logits of a sequence with a grammar."""

    def __init__(self, batch: Batch, row_id: Callable[[int, int], int]) -> None:
        """row_id: the id that a sequence goes by behind so many of its drafts."""
        self._batch = batch
        self._row_id = row_id
        self._words = mask_words(batch.vocab_size)
        self._row_of: dict[int, int] = {}
        self.rows: I32 = NO_MASKS

    def prepare(self, segments: Sequence[Segment], failed: dict[int, str]) -> None:
        """Compute the masks of those that sample. What goes wrong with one goes into failed."""
        self._row_of = {}
        sampled = [segment for segment in segments if segment.needs_sample and segment.state.matcher is not None]
        if not sampled:
            return
        count = sum(1 + segment.num_drafts for segment in sampled)
        if len(self.rows) < count:
            self.rows = np.zeros((count, self._words), np.int32)
        next_row = 0
        for segment in sampled:
            try:
                self._fill(segment, next_row)
            except Exception as error:  # whatever it is, it must end this sequence and no other
                failed[segment.state.seq_id] = f"the form of the answer cannot be kept: {error}"
            for num_drafts in range(1 + segment.num_drafts):
                self._row_of[self._row_id(segment.state.seq_id, num_drafts)] = next_row
                next_row += 1

    def row_of(self, state: ResidentSequence) -> int:
        """The row of a sequence, as it stands or behind drafts; -1: it has no grammar."""
        return -1 if state.matcher is None else self._row_of[state.seq_id]

    def mask_of(self, state: ResidentSequence) -> I32 | None:
        """int32 [words]; None: it has no grammar."""
        return None if state.matcher is None else self.rows[self._row_of[state.seq_id]]

    def _fill(self, segment: Segment, first: int) -> None:
        state, matcher = segment.state, segment.state.matcher
        assert matcher is not None
        history = self._batch.history(state)
        matcher.accept(history[state.num_prompt + matcher.num_accepted :].tolist())
        matcher.fill_mask(self.rows[first])
        if not self.rows[first].any():
            raise ValueError("no token may come next")
        if segment.num_drafts:
            drafts = self._batch.drafts(state, segment.num_drafts)
            matcher.rollback(self._fill_behind(matcher, drafts, first + 1))

    def _fill_behind(self, matcher: GrammarMatcher, drafts: list[int], first: int) -> int:
        """Masks behind each draft. Returns how many the matcher has moved on by. What stands behind a draft that the grammar
        does not allow does not count: no mask is needed there."""
        self.rows[first : first + len(drafts)] = -1
        for index, token_id in enumerate(drafts):
            if not matcher.try_accept(token_id):
                return index
            matcher.fill_mask(self.rows[first + index])
        return len(drafts)
