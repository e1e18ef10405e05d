"""Beam search: the likeliest continuations of a prompt, found one token at a time by whoever can ask for logprobs.

    prompts -> one-token requests with the top 2 * beam_width logprobs -> advance -> prompts ... -> best

Nothing here runs a request. The prompts of a step differ in their last tokens alone, so the prefix cache has nearly all of
them. Names and meanings follow vLLM.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from octavo.engine.frontend.logprobs import PositionLogprobs
from octavo.errors import InvalidRequestError
from octavo.sampling_params import MAX_LOGPROBS, RequestOutputKind, SamplingParams
from octavo.text.tokenizer import Tokenizer

MAX_BEAM_WIDTH = MAX_LOGPROBS // 2
"""A step asks for twice as many alternatives as there are beams: the end of sequence may be among them."""
MAX_LENGTH_PENALTY = 10.0


@dataclass(frozen=True, slots=True)
class BeamSearchParams:
    """Settings of a beam search; checked when they are made.

    beam_width      continuations that are kept after each token, and that are returned
    max_tokens      most tokens of a continuation
    ignore_eos      the end of sequence is a token like any other
    temperature     without effect, as in vLLM: continuations are compared by the logprobs of the raw logits
    length_penalty  a continuation's score is its logprob / (tokens of prompt and continuation) ** length_penalty
    include_stop_str_in_output  the end of sequence stands in the text, where the text shows control tokens
    """

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    include_stop_str_in_output: bool = False

    def __post_init__(self) -> None:
        """Raises InvalidRequestError naming the field."""
        _require("beam_width", self.beam_width, 1, MAX_BEAM_WIDTH, whole=True)
        _require("max_tokens", self.max_tokens, 1, 2**63 - 1, whole=True)
        _require("length_penalty", self.length_penalty, -MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY)
        SamplingParams(temperature=self.temperature)

    @property
    def sampling(self) -> SamplingParams:
        """What each step asks the engine for."""
        return SamplingParams(
            temperature=0.0,
            max_tokens=1,
            logprobs=2 * self.beam_width,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )


def _require(name: str, value: object, low: float, high: float, *, whole: bool = False) -> None:
    kind = numbers.Integral if whole else numbers.Real
    if isinstance(value, bool) or not isinstance(value, kind) or not low <= float(value) <= high:
        noun = "a whole number" if whole else "a number"
        limits = f"{noun}, {low:g} or more" if high > 2**32 else f"{noun}, {low:g} to {high:g}"
        raise InvalidRequestError(f"{name} is {repr(value)[:100]}; it must be {limits}", param=name)


@dataclass(frozen=True, slots=True)
class Beam:
    """One continuation of the prompt. token_ids and logprobs have one entry per token; an end of sequence is the last."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[PositionLogprobs] = field(default_factory=list)
    cum_logprob: float = 0.0
    has_ended: bool = False

    @property
    def num_tokens(self) -> int:
        """Tokens without the end of sequence."""
        return len(self.token_ids) - self.has_ended

    def extended(self, entry: PositionLogprobs, token_id: int, logprob: float, rank: int, has_ended: bool) -> Beam:
        own = PositionLogprobs(token_id, logprob, rank, entry.top_ids, entry.top_logprobs, entry.token_text)
        return Beam([*self.token_ids, token_id], [*self.logprobs, own], self.cum_logprob + logprob, has_ended)

    def text(self, tokenizer: Tokenizer, *, shows_end: bool, hidden: frozenset[int]) -> str:
        """Text of the continuation without the hidden tokens; shows_end: with that of its end of sequence."""
        token_ids = self.token_ids if shows_end else self.token_ids[: self.num_tokens]
        kept = [token_id for token_id in token_ids if token_id not in hidden]
        raw = tokenizer.tokens_to_bytes(kept, skip_special_tokens=False, at_start=False)
        return raw.decode("utf-8", "replace")


@dataclass(slots=True)
class BeamSearchSequence:
    """One continuation as LLM.beam_search returns it. tokens and text begin with the prompt and end with the end of sequence.

    logprobs  one entry per token of the continuation
    """

    tokens: list[int]
    logprobs: list[PositionLogprobs]
    cum_logprob: float
    text: str
    finish_reason: str

    @classmethod
    def of(cls, prompt_token_ids: list[int], beam: Beam, tokenizer: Tokenizer) -> BeamSearchSequence:
        tokens = prompt_token_ids + beam.token_ids
        text = tokenizer.decode(tokens, skip_special_tokens=False)
        return cls(tokens, beam.logprobs, beam.cum_logprob, text, "stop" if beam.has_ended else "length")


@dataclass(slots=True)
class BeamSearchOutput:
    """The continuations of one prompt, the best first."""

    sequences: list[BeamSearchSequence]


class BeamSearch:
    """The search for one prompt. Ties go to the better beam, then to the likelier token: it is a function of the logits.

    running  the beams that the next token is looked for; ended: those that the end of sequence has closed
    """

    def __init__(
        self, prompt_token_ids: Sequence[int], params: BeamSearchParams, eos_token_ids: Iterable[int], max_model_len: int
    ) -> None:
        self.prompt_token_ids = list(prompt_token_ids)
        self.running = [Beam()]
        self.ended: list[Beam] = []
        self._params = params
        self._eos = frozenset() if params.ignore_eos else frozenset(eos_token_ids)
        self._num_left = min(params.max_tokens, max_model_len - len(self.prompt_token_ids))

    @property
    def prompts(self) -> list[list[int]]:
        """What the next step computes, a prompt for each running beam; empty when the search is over."""
        return [self.prompt_token_ids + beam.token_ids for beam in self.running] if self._num_left > 0 else []

    def advance(self, entries: Sequence[PositionLogprobs | None]) -> None:
        """Go on by one token. entries: what follows each of `prompts`; None: time is over, the search ends with what it has."""
        if any(entry is None for entry in entries):
            self._num_left = 0
            return
        self._num_left -= 1
        candidates: list[tuple[float, int, int, int]] = []
        for index, (beam, entry) in enumerate(zip(self.running, entries, strict=True)):
            assert entry is not None
            for rank, (token_id, logprob) in enumerate(zip(entry.top_ids, entry.top_logprobs, strict=True), 1):
                if not math.isfinite(logprob):
                    continue  # nothing of the vocabulary is left
                if token_id in self._eos:
                    self.ended.append(beam.extended(entry, token_id, logprob, rank, has_ended=True))
                else:
                    candidates.append((-(beam.cum_logprob + logprob), index, rank, token_id))
        self.running = [
            self._extended(index, entries[index], rank, token_id)
            for _, index, rank, token_id in sorted(candidates)[: self._params.beam_width]
        ]

    def _extended(self, index: int, entry: PositionLogprobs | None, rank: int, token_id: int) -> Beam:
        assert entry is not None
        return self.running[index].extended(entry, token_id, entry.top_logprobs[rank - 1], rank, has_ended=False)

    def best(self) -> list[Beam]:
        """The beam_width continuations of the highest score, the best first; those that still run are among them."""
        return sorted([*self.ended, *self.running], key=self._score, reverse=True)[: self._params.beam_width]

    def _score(self, beam: Beam) -> float:
        length = len(self.prompt_token_ids) + beam.num_tokens
        return float(beam.cum_logprob / length**self._params.length_penalty)
