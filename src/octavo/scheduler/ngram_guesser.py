"""NgramGuesser: what will follow a sequence, if it goes on as a text that it holds already."""

from __future__ import annotations

from octavo.scheduler.ngram_index import NgramIndex
from octavo.sequence import Sequence

_MOST_INDEXED = 16_384
"""Tokens taken in per call: a long prompt is indexed in the course of several steps, so that none of them waits for it."""
_LONG_RUN = 8
_TRIES = 3


class NgramGuesser:
    """Reads the prompt, the text that the request itself predicts, and the output, in this order. One per sequence."""

    def __init__(self, sequence: Sequence, min_n: int, max_n: int) -> None:
        self._index = NgramIndex(min_n, max_n)
        self._sequence = sequence
        self._head = sequence.request.prompt_token_ids
        prediction = sequence.request.predicted_token_ids
        if prediction:
            self._head = self._head + prediction
        self._num_head = len(self._head)
        self._follows_prediction = bool(prediction)
        """The output is the prediction's beginning so far."""
        self._num_followed = 0
        self._source = -1
        """Position that the last guess was taken from; `confirm` moves it on."""
        self._run = 0
        """Right guesses since the last wrong one."""
        self._resumed = -1
        self._num_tries = 0
        """Where the text would go on behind a wrong guess, and how often that is still tried where nothing else is found."""

    def guess(self, limit: int) -> list[int]:
        """At most `limit` tokens, likely to follow the last one; none if nothing is likely."""
        if not self._take_in():
            return []
        index, source = self._index, self._source
        if self._follows_prediction:
            source = self._after_prediction()
        if not 0 <= source < len(index):
            source = index.find()
        if source < 0 and self._num_tries:
            source = self._resumed
        self._source = source
        return index.tokens[source : source + limit].tolist() if source >= 0 else []

    def confirm(self, num_right: int, num_gained: int) -> None:
        """Of the last guess the first num_right tokens came true; the sequence gained num_gained tokens since."""
        # A run of right guesses goes on from where it is: a search could jump to another place that looks the same.
        following = self._source + num_gained
        self._run += num_right
        if 0 < num_right == num_gained:
            self._source = following
            return
        # Behind a long run a wrong guess is often one token changed: the text may go on as before.
        self._num_tries = _TRIES if self._run >= _LONG_RUN else max(0, self._num_tries - 1)
        self._source, self._resumed, self._run = -1, following, 0

    def _take_in(self) -> bool:
        """Bring the index up to the sequence. False: some of it is left for the next call."""
        index, output = self._index, self._sequence.output_token_ids
        done = len(index)
        if done < self._num_head:
            index.extend(self._head[done : done + _MOST_INDEXED])
            done = len(index)
            if done < self._num_head:
                return False
            self._head = []
        index.extend(output[done - self._num_head : done - self._num_head + _MOST_INDEXED])
        return len(index) == self._num_head + len(output)

    def _after_prediction(self) -> int:
        """Where the prediction goes on, while the output is its beginning; -1 from the first other token on."""
        output, prediction = self._sequence.output_token_ids, self._sequence.request.predicted_token_ids
        done, count = self._num_followed, len(output)
        if count < len(prediction) and output[done:] == prediction[done:count]:
            self._num_followed = count
            return self._num_head - len(prediction) + count
        self._follows_prediction = False
        return -1
