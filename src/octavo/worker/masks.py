"""Masks: the tokens that a step's sequences may choose of, by grammar or by list, made while the device computes the logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from octavo.errors import DEAD_END
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


def num_allowed(batch: Batch, state: ResidentSequence, count: int) -> int:
    """How many of the step's `count` drafts the grammar allows, one behind the other. The others need not be computed."""
    matcher = state.matcher
    if matcher is None or not count:
        return count
    try:
        _catch_up(batch, state, matcher)
    except ValueError:
        return count  # the mask fails in the same way, and says so
    probe = matcher.copy()  # what a guess leads to, a limit that it meets for one, must not reach the answer
    for index, token_id in enumerate(batch.drafts(state, count)):
        if not probe.try_accept(token_id):
            return index
    return count


def _catch_up(batch: Batch, state: ResidentSequence, matcher: GrammarMatcher) -> None:
    """Move the matcher on to the end of the answer so far."""
    output = batch.history(state)[state.num_prompt :]
    assert matcher.num_accepted <= output.size, "the matcher is ahead of the answer"
    matcher.accept(output[matcher.num_accepted :].tolist())


class Masks:
    """The masks of one forward pass, a row for each row of logits of a sequence that may not choose freely."""

    def __init__(self, batch: Batch, row_id: Callable[[int, int], int]) -> None:
        """row_id: the id that a sequence goes by behind so many of its drafts."""
        self._batch = batch
        self._row_id = row_id
        self._words = mask_words(batch.vocab_size)
        self._row_of: dict[int, int] = {}
        self.failed_rows: dict[int, str] = {}
        """Rows behind drafts that have no mask, by their ids: what went wrong counts only if the drafts are right."""
        self.rows: I32 = NO_MASKS

    def prepare(self, segments: Sequence[Segment], failed: dict[int, str]) -> None:
        """Compute the masks of those that sample. What goes wrong with one goes into failed."""
        self._row_of, self.failed_rows = {}, {}
        sampled = [segment for segment in segments if segment.needs_sample and segment.state.has_mask]
        if not sampled:
            return
        count = sum(1 + segment.num_drafts for segment in sampled)
        if len(self.rows) < count:
            self.rows = np.zeros((count, self._words), np.int32)
        next_row = 0
        for segment in sampled:
            try:
                self._fill(segment, next_row)
            except ValueError as error:
                failed[segment.state.seq_id] = f"{DEAD_END}{error}"
            except Exception as error:  # whatever it is, it must end this sequence and no other
                failed[segment.state.seq_id] = f"the mask of the answer could not be made: {type(error).__name__}: {error}"
            for num_drafts in range(1 + segment.num_drafts):
                self._row_of[self._row_id(segment.state.seq_id, num_drafts)] = next_row
                next_row += 1

    def row_of(self, state: ResidentSequence) -> int:
        """The row of a sequence, as it stands or behind drafts; -1: it chooses freely."""
        return self._row_of[state.seq_id] if state.has_mask else -1

    def mask_of(self, state: ResidentSequence) -> I32 | None:
        """int32 [words]; None: it chooses freely."""
        return self.rows[self._row_of[state.seq_id]] if state.has_mask else None

    def _fill(self, segment: Segment, first: int) -> None:
        """The row of a sequence as it stands, then those behind its drafts."""
        state, matcher = segment.state, segment.state.matcher
        if matcher is not None:
            _catch_up(self._batch, state, matcher)
        _fill_row(state, self.rows[first], matcher)
        if not self.rows[first].any():
            of_form = " that the form of the answer allows here" if matcher is not None else ""
            raise ValueError("no token may come next" if state.allowed is None else f"allowed_token_ids has no token{of_form}")
        if segment.num_drafts:
            self._fill_behind(segment, first + 1)

    def _fill_behind(self, segment: Segment, first: int) -> None:
        """What stands behind a draft that the grammar does not allow does not count: no mask is needed there."""
        state, matcher, count = segment.state, segment.state.matcher, segment.num_drafts
        self.rows[first : first + count] = -1
        probe = None if matcher is None else matcher.copy()
        for index, token_id in enumerate(self._batch.drafts(state, count)):
            if probe is not None and not probe.try_accept(token_id):
                break
            try:
                _fill_row(state, self.rows[first + index], probe)
            except ValueError as error:
                self.rows[first + index] = -1
                self.failed_rows[self._row_id(state.seq_id, index + 1)] = f"{DEAD_END}{error}"
                break


def _fill_row(state: ResidentSequence, row: I32, matcher: GrammarMatcher | None) -> None:
    """row: int32 [words]; matcher: the sequence's own, or one that is ahead of it."""
    allowed = state.allowed
    if matcher is None:
        row[:] = -1
    else:
        matcher.fill_mask(row)
    # Behind a whole answer nothing but its end can stand: that needs no permission.
    if allowed is not None and not (matcher is not None and matcher.is_complete):
        row &= allowed
