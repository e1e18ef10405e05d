"""Speculation: which guesses the next step verifies behind each sequence's last token, and what came of those before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from octavo.config.resolved import ResolvedSchedulerConfig
from octavo.config.speculative import DEFAULT_SPECULATIVE_TOKENS, speculation_of
from octavo.sampling_params import MAX_SPECULATIVE_TOKENS
from octavo.scheduler.budget import StepBudget
from octavo.scheduler.draft_pace import DraftPace
from octavo.scheduler.drafter import NO_DRAFTS, Drafter, Guesser
from octavo.scheduler.ngram_guesser import NgramGuesser
from octavo.scheduler.step_time import StepTimeModel
from octavo.scheduler.update import SequenceUpdate
from octavo.sequence import Sequence

_LEAST_ROW = 0.02
"""Of what a token is worth: no row is free, though a model that has seen few steps may say so."""
_UNKNOWN_ROW = 0.2
_MANY_IDLE = 16
_REST = 4
"""After so many looks in vain, only every fourth step looks: to look takes time, too."""
_MOST_PURSE = 16.0
"""Steps whose worth is kept for others."""
_MOST_UNKNOWN = 2
"""The same, of rows whose cost no step has told yet: a small model on a few CPU cores. A few guesses tell it."""


@dataclass(slots=True)
class SpeculationStats:
    """Counters. accepted_at[i]: how often the guess i places behind the last token was accepted."""

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    accepted_at: list[int] = field(default_factory=lambda: [0] * MAX_SPECULATIVE_TOKENS)


@dataclass(slots=True)
class _Speculating:
    """A sequence that has guesses.

    num_idle           looks in a row of which no guess came true
    guess, num_output  the last guess, and the length of the output it was to follow
    token_s, row_s     what a token was worth then, and what a row cost
    """

    guesser: Guesser
    pace: DraftPace
    guess: list[int] = field(default_factory=list)
    num_output: int = -1
    num_idle: int = 0
    token_s: float = 0.0
    row_s: float = 0.0


class Speculation:
    """One per scheduler. Pure: time comes from the model of step times.

    A row for a guess costs what the model says of one more row. A token that is gained is worth the time that the step takes
    per token: with one sequence a whole step, with many little more than a row, so that less is guessed under load. Steps that
    prompts could fill have no guesses.

    guesser_of  makes what guesses for a sequence
    """

    def __init__(self, config: ResolvedSchedulerConfig, step_time: StepTimeModel, drafter: Drafter | None = None) -> None:
        """drafter: takes the place of all that; it is asked for every sequence in every step."""
        self.guesser_of: Callable[[Sequence], Guesser] = self._ngram_guesser
        self.stats = SpeculationStats()
        self._config = speculation_of(config.speculative_config)
        self._max_model_len = config.max_model_len
        self._step_time = step_time
        self._drafter = drafter
        self._live: dict[int, _Speculating] = {}
        self._purse_s: float | None = None
        """Seconds that sequences which have ended saved: a new one is lent a step's worth of it, and need not save first.
        None: there was no sequence yet. The first one is lent it all the same."""
        self._is_open = False
        self._most = 0
        self._spare_tokens = 0
        self._step_s = self._num_gained = self._decode_s = self._attended_s = 0.0
        """Of the step in the making: seconds and tokens that it is expected to take and bring; seconds of a row."""

    def limit_of(self, sequence: Sequence) -> int:
        """Most guesses of the sequence in one step: the request's own word, or that of the server."""
        request = sequence.request
        asked = request.sampling.num_speculative_tokens
        if asked is None:
            asked = self._config.num_speculative_tokens
            if request.predicted_token_ids and not asked:
                asked = DEFAULT_SPECULATIVE_TOKENS
        return asked

    def begin_step(self, decodes: list[Sequence], budget: StepBudget, *, is_open: bool) -> None:
        """decodes: the sequences of the next step that decode; is_open: no prompt could use the room that guesses take."""
        limit = self._config.disable_by_batch_size
        is_asked = is_open and (limit is None or len(decodes) < limit) and any(map(self.limit_of, decodes))
        self._is_open = is_asked or self._drafter is not None
        if self._is_open:
            self._spare_tokens = budget.tokens - sum(sequence.num_tokens - sequence.num_computed for sequence in decodes)
        if is_asked:
            self._price(decodes)

    def drafts(self, sequence: Sequence, num_new: int, budget: StepBudget) -> list[int]:
        """Guesses to verify behind num_new known tokens, no more than could become tokens of the answer."""
        if not self._is_open or sequence.num_computed + num_new < sequence.num_tokens:
            return NO_DRAFTS
        num_left = sequence.request.max_tokens - len(sequence.output_token_ids)
        num_free = self._max_model_len - sequence.num_tokens
        room = min(num_left - 1, num_free - 1, budget.num_drafts(num_new), self._spare_tokens)
        if room < 1:
            return NO_DRAFTS
        if self._drafter is not None:
            drafts = self._drafter.propose(sequence, room)[:room]
        else:
            drafts = self._worthwhile(sequence, min(room, self.limit_of(sequence)))
        self._spare_tokens -= len(drafts)
        return drafts

    def settle(self, sequence: Sequence, drafts: list[int], update: SequenceUpdate | None) -> None:
        """A share of the sequence was settled, with this news."""
        new_token_ids = update.new_token_ids if update is not None else NO_DRAFTS
        num_accepted = _num_equal(drafts, new_token_ids)
        if drafts:
            stats = self.stats
            stats.num_drafts += 1
            stats.num_draft_tokens += len(drafts)
            stats.num_accepted_tokens += num_accepted
            for index in range(num_accepted):
                stats.accepted_at[index] += 1
            if update is not None:
                update.num_drafted, update.num_accepted = len(drafts), num_accepted
        live = self._live.get(sequence.seq_id)
        if live is None or not new_token_ids:
            return
        live.pace.settle(len(drafts), num_accepted, len(new_token_ids), live.token_s, live.row_s)
        if live.guess and live.num_output + len(new_token_ids) == len(sequence.output_token_ids):
            num_right = _num_equal(live.guess, new_token_ids)
            live.num_idle = 0 if num_right else live.num_idle
            live.pace.learn(num_right, min(len(live.guess), len(new_token_ids)))
            live.guesser.confirm(num_right, len(new_token_ids))
        live.guess = NO_DRAFTS

    def forget(self, seq_id: int) -> None:
        """The sequence has ended."""
        live = self._live.pop(seq_id, None)
        if live is not None and self._purse_s is not None:
            self._purse_s = min(self._purse_s + max(0.0, live.pace.saved_s), _MOST_PURSE * live.token_s)

    def _price(self, decodes: list[Sequence]) -> None:
        """What a row of this step costs, and what a token is worth."""
        base_s, _, self._decode_s, self._attended_s = self._step_time.costs
        num_attended = sum(sequence.num_computed for sequence in decodes)
        self._step_s = base_s + self._decode_s * len(decodes) + self._attended_s * num_attended
        self._num_gained = float(len(decodes))
        self._most = MAX_SPECULATIVE_TOKENS
        if not self._step_time.knows_rows:
            self._most = _MOST_UNKNOWN
            self._decode_s = min(self._decode_s, _UNKNOWN_ROW * self._step_s / self._num_gained)

    def _worthwhile(self, sequence: Sequence, limit: int) -> list[int]:
        token_s = self._step_s / self._num_gained
        row_s = max(_LEAST_ROW * token_s, self._decode_s + self._attended_s * sequence.num_computed)
        if limit < 1 or token_s <= row_s:
            return NO_DRAFTS  # not even a guess that is surely right
        live = self._live.get(sequence.seq_id)
        if live is None:
            live = self._live[sequence.seq_id] = self._begin(sequence, token_s)
        if live.num_idle >= _MANY_IDLE and len(sequence.output_token_ids) % _REST:
            return NO_DRAFTS
        live.num_idle += 1
        # One more than can be verified: the token behind right guesses is compared, too.
        live.guess, live.num_output = live.guesser.guess(limit + 1), len(sequence.output_token_ids)
        live.token_s, live.row_s = token_s, row_s
        count = live.pace.count(min(limit, self._most, len(live.guess)), token_s, row_s)
        if not count:
            return NO_DRAFTS
        self._step_s += count * row_s
        self._num_gained += live.pace.expected(count)
        return live.guess[:count]

    def _begin(self, sequence: Sequence, token_s: float) -> _Speculating:
        loan_s = min(token_s, token_s if self._purse_s is None else self._purse_s)
        self._purse_s = (self._purse_s or loan_s) - loan_s
        prefill_s = self._step_time.prefill_s(sequence.num_prompt - (sequence.num_cached_prompt or 0), 0)
        pace = DraftPace(prefill_s, loan_s, is_predicted=bool(sequence.request.predicted_token_ids))
        return _Speculating(self.guesser_of(sequence), pace)

    def _ngram_guesser(self, sequence: Sequence) -> Guesser:
        return NgramGuesser(sequence, self._config.prompt_lookup_min, self._config.prompt_lookup_max)


def _num_equal(guess: list[int], token_ids: list[int]) -> int:
    """How many tokens at the beginning agree."""
    count = 0
    for guessed, token_id in zip(guess, token_ids, strict=False):
        if guessed != token_id:
            break
        count += 1
    return count
