"""Sampler: rows of logits to tokens and logprobs, by the settings of each sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic

import numpy as np

from octavo.ops.arrays import F32, I32
from octavo.ops.interface import Logits, Sampling
from octavo.ops.sample_rows import SampleResult, SampleRows
from octavo.step import PromptLogprobs, SampledTokens, TokenLogprobs
from octavo.worker.batch import Batch, ResidentSequence, Segment
from octavo.worker.masks import NO_MASKS, Masks, leaves_any

_NO_IDS = np.zeros(0, np.int32)
_NO_VALUES = np.zeros(0, np.float32)


class Sampler(Generic[Logits]):
    """Chooses the next tokens of a batch's sequences on a backend."""

    def __init__(self, backend: Sampling[Logits], batch: Batch, masks: Masks) -> None:
        """masks: those of the sequences in the step that may not choose freely."""
        self._backend = backend
        self._batch = batch
        self._masks = masks
        self._last_states: list[ResidentSequence] = []
        self._last_rows: SampleRows
        """Settings of _last_states."""

    def sample(
        self, logits: Logits, states: list[ResidentSequence], logit_rows: list[int], failed: dict[int, str]
    ) -> list[SampledTokens]:
        """Choose the token that follows each sequence.

        logit_rows[i] is the row of states[i] in the logits. What goes wrong with one sequence, logits that
        are not finite included, goes into failed and leaves the others as they are: noise has no state, so a second call for
        the remaining rows chooses the same tokens.
        """
        if not states:
            return []
        try:
            result = self._backend.sample(logits, self._rows(states, logit_rows))
        except Exception as error:  # whatever it is, it must end the sequence that caused it and no other
            if len(states) == 1:
                failed[states[0].seq_id] = f"sampling failed: {error}"
                return []
            sampled: list[SampledTokens] = []
            for state, row in zip(states, logit_rows, strict=True):
                sampled += self.sample(logits, [state], [row], failed)
            return sampled
        return self._settle(states, result, failed)

    def prompt_logprobs(self, logits: Logits, share: Segment, first_logit_row: int) -> PromptLogprobs:
        """Logprobs of the share's prompt tokens: that of position p comes from the logits of position p - 1.

        Those logits stand at rows first_logit_row, first_logit_row + 1, ... Raises: ValueError if they are not finite.
        """
        count, state = share.prompt_logit_rows, share.state
        top = state.sampling.prompt_logprobs or 0
        token_ids = self._batch.history(state)[share.first + 1 : share.first + 1 + count]
        rows = np.arange(first_logit_row, first_logit_row + count, dtype=np.int32)
        result = self._backend.logprobs(logits, rows, np.ascontiguousarray(token_ids), top)
        if not result.is_finite.all():
            raise ValueError("the model's logits are not finite")
        return PromptLogprobs(state.seq_id, share.first + 1, [_token_logprobs(result, index, top) for index in range(count)])

    def _settle(self, states: list[ResidentSequence], result: SampleResult, failed: dict[int, str]) -> list[SampledTokens]:
        """Sampled tokens of the rows that are finite."""
        token_ids: list[int] = result.token_ids.tolist()
        is_finite: list[bool] = result.is_finite.tolist()
        sampled: list[SampledTokens] = []
        for index, (state, token_id) in enumerate(zip(states, token_ids, strict=True)):
            top = state.sampling.logprobs
            if not is_finite[index]:
                failed[state.seq_id] = "the model's logits are not finite"
                continue
            logprobs = [] if top is None else [_token_logprobs(result, index, top)]
            sampled.append(SampledTokens(state.seq_id, [token_id], logprobs))
        return sampled

    def _rows(self, states: list[ResidentSequence], logit_rows: Sequence[int]) -> SampleRows:
        """Settings of states, with the history and biases of those that have any.

        What no token changes is gathered only when other sequences are sampled than the last time.
        """
        if states != self._last_states:
            self._last_rows = self._settings_of(states)
            self._last_states = states
        rows = self._last_rows
        rows.logit_row = np.array(logit_rows, np.int32)
        rows.position = np.array([state.num_tokens for state in states], np.int32)
        if any(state.has_history for state in states):
            rows.history, rows.history_start = _concatenate(
                [self._batch.history(state) if state.has_history else _NO_IDS for state in states]
            )
        if any(state.has_bias for state in states):
            biases = [_bias(state, self._batch.history(state), self._masks.mask_of(state)) for state in states]
            rows.bias_ids, rows.bias_start = _concatenate([ids for ids, _ in biases])
            rows.bias_values = np.concatenate([values for _, values in biases])
        if any(state.has_mask for state in states):
            rows.mask_row = np.array([self._masks.row_of(state) for state in states], np.int32)
            rows.masks = self._masks.rows
        return rows

    def _settings_of(self, states: Sequence[ResidentSequence]) -> SampleRows:
        """What of SampleRows stays the same from token to token; no history and no biases."""
        settings = self._batch.settings
        rows = np.array([state.row for state in states], np.int64)
        nothing_starts = np.zeros(len(states) + 1, np.int64)
        return SampleRows(
            logit_row=_NO_IDS,
            temperature=settings.temperature[rows],
            top_k=settings.top_k[rows],
            top_p=settings.top_p[rows],
            min_p=settings.min_p[rows],
            repetition=settings.repetition[rows],
            presence=settings.presence[rows],
            frequency=settings.frequency[rows],
            seed=settings.seed[rows],
            choice=settings.choice[rows],
            position=_NO_IDS,
            history=_NO_IDS,
            history_start=nothing_starts,
            num_prompt=settings.num_prompt[rows],
            bias_ids=_NO_IDS,
            bias_values=_NO_VALUES,
            bias_start=nothing_starts,
            top_logprobs=settings.top_logprobs[rows],
            mask_row=np.full(len(states), -1, np.int32),
            masks=NO_MASKS,
        )


def _bias(state: ResidentSequence, history: I32, mask: I32 | None) -> tuple[I32, F32]:
    """Ids and values added to a row's logits: logit_bias, then -inf on ids that must not come yet or must not come here.

    mask: what may be chosen, int32 [words]. Where that is only the end, the end may come before min_tokens.
    Raises ValueError if bad_words leave nothing of it.
    """
    bias = state.sampling.logit_bias or {}
    masked = [*_bad_word_ends(state.sampling.bad_words_ids, history[state.num_prompt :])]
    if mask is not None and masked and not leaves_any(mask, masked):
        raise ValueError("bad_words forbid all that may come here")
    if state.num_tokens - state.num_prompt < state.sampling.min_tokens:
        ends = state.masked_ids.tolist()
        if mask is None or leaves_any(mask, masked + ends):
            masked += ends
    ids = np.array([*bias, *masked], np.int32)
    values = np.array([*bias.values(), *[-np.inf] * len(masked)], np.float32)
    return ids, values


def _bad_word_ends(bad_words_ids: Sequence[Sequence[int]], output: I32) -> Iterator[int]:
    """Last tokens of the words whose other tokens stand at the end of the output. Source: vLLM, v1/sample/ops/bad_words.py."""
    for ids in bad_words_ids:
        before = len(ids) - 1
        if before <= output.size and output[output.size - before :].tolist() == list(ids[:-1]):
            yield ids[-1]


def _concatenate(pieces: Sequence[I32]) -> tuple[I32, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """All pieces in one array, and where each starts: int64 [len(pieces) + 1]."""
    start = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([piece.size for piece in pieces], out=start[1:])
    return np.concatenate(pieces), start


def _token_logprobs(result: SampleResult, index: int, top: int) -> TokenLogprobs:
    return TokenLogprobs(
        token_id=int(result.token_ids[index]),
        logprob=float(result.logprob[index]),
        rank=int(result.rank[index]),
        top_ids=result.top_ids[index, :top].tolist(),
        top_logprobs=result.top_values[index, :top].tolist(),
    )
