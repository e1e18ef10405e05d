"""DraftPace: how many guesses of one sequence are worth a row of a step, by how the earlier ones came out."""

from __future__ import annotations

_SMOOTHING = 0.125
"""Weight of the newest guess in a running mean."""
_FIRST_RATE = 0.3
_NEXT_RATE = 0.7
_PREDICTED_RATE = 0.8
_MARGIN = 1.1
"""A row must bring so many times what it costs: both are estimates."""
MOST_LOSS = 0.015
"""Share of a sequence's time that wrong guesses may cost it, over all that right ones have gained."""
_MOST_SAVED = 16.0
"""Steps whose worth a sequence may have in hand: gains of long ago do not pay for losses without end."""


class DraftPace:
    """Learns from every guess, also from those that no step verified: the token that comes is compared with it all the same.

    Two running means of guesses that came true: of the first one after a wrong one or after none, and of those that go on
    behind a right one. Text that is copied has few beginnings and long runs.

    The account, in seconds: what right guesses gained, less what rows cost, plus MOST_LOSS of the time the sequence has taken.
    Rows are drawn from it, so that guesses cost no more than that even where the means are wrong.
    """

    __slots__ = ("_first_rate", "_is_running", "_next_rate", "_saved_s")

    def __init__(self, prefill_s: float, loan_s: float = 0.0, *, is_predicted: bool) -> None:
        """prefill_s: seconds that its prompt took; loan_s: what others have saved and did not need; is_predicted: the request
        says what its output will be like."""
        self._first_rate = _PREDICTED_RATE if is_predicted else _FIRST_RATE
        self._next_rate = _PREDICTED_RATE if is_predicted else _NEXT_RATE
        self._is_running = False
        self._saved_s = MOST_LOSS * prefill_s + loan_s

    @property
    def saved_s(self) -> float:
        """What is in the account."""
        return self._saved_s

    def count(self, limit: int, token_s: float, row_s: float) -> int:
        """How many of the next `limit` guesses to verify.

        token_s: seconds that a further token of this step is worth; row_s: seconds that a further row takes.
        """
        limit = min(limit, int(self._saved_s / row_s)) if row_s > 0.0 else limit
        count, probability = 0, self._next_rate if self._is_running else self._first_rate
        while count < limit and probability * token_s > _MARGIN * row_s:
            count += 1
            probability *= self._next_rate
        return count

    def expected(self, count: int) -> float:
        """Tokens that `count` guesses are expected to bring."""
        probability = self._next_rate if self._is_running else self._first_rate
        total = 0.0
        for _ in range(count):
            total += probability
            probability *= self._next_rate
        return total

    def learn(self, num_right: int, num_guessed: int) -> None:
        """The tokens that came were compared with num_guessed guesses, of which the first num_right were right."""
        for index in range(min(num_right + 1, num_guessed)):
            hit = index < num_right
            if self._is_running:
                self._next_rate += _SMOOTHING * (hit - self._next_rate)
            else:
                self._first_rate += _SMOOTHING * (hit - self._first_rate)
            self._is_running = hit

    def settle(self, num_drafts: int, num_accepted: int, num_gained: int, token_s: float, row_s: float) -> None:
        """A step verified num_drafts guesses, of which num_accepted became tokens; the sequence gained num_gained in all."""
        earned_s = MOST_LOSS * (num_gained - num_accepted) * token_s
        self._saved_s += earned_s + num_accepted * token_s - num_drafts * row_s
        self._saved_s = min(self._saved_s, _MOST_SAVED * token_s)
