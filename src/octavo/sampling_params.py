"""SamplingParams: how the next token is chosen and when a request ends. Names and meanings follow vLLM and OpenAI."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from octavo.errors import InvalidRequestError

MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 512
MAX_LOGIT_BIAS = 1024
MAX_LOGPROBS = 20
MAX_N = 64
MAX_TEMPERATURE = 100.0
_SEED_LIMIT = 2**63


class SamplingParams(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Sampling settings of one request; `validate()` checks every bound.

    n                   number of independent completions of the prompt (choice index 0..n-1)
    max_tokens          most tokens to generate per choice; None: up to the context limit
    min_tokens          end-of-sequence and stop token ids are masked until this many tokens exist
    temperature         0 is greedy; logits are divided by it otherwise
    top_k               keep the k most likely tokens; 0 or -1 keeps all
    top_p               keep the smallest set of likely tokens whose probability reaches top_p
    min_p               drop tokens less likely than min_p times the most likely one
    repetition_penalty  > 1 makes tokens of prompt and output less likely (Keskar et al., 2019)
    presence_penalty    subtracted once from the logit of every token already in the output
    frequency_penalty   subtracted per occurrence in the output
    seed                with it the noise of position p is f(seed, choice index, p); None draws a random seed
    logit_bias          token id -> value added to its logit, -100..100
    stop                strings that end the output; not part of it unless include_stop_str_in_output
    stop_token_ids      token ids that end the output, besides the model's own end-of-sequence ids
    ignore_eos          do not end at the model's end-of-sequence ids
    logprobs            None, or how many top alternatives (0..20) to report besides the chosen token, per output token.
                        Values are log-softmax of the raw logits, before bias, penalties and temperature.
    prompt_logprobs     the same for every prompt token but the first; such a request reads nothing from the prefix cache
    skip_special_tokens leave control tokens out of the text
    spaces_between_special_tokens  accepted for compatibility; only True is supported
    """

    n: int = 1
    max_tokens: int | None = 16
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    logit_bias: dict[int, float] | None = None
    stop: list[str] = []
    stop_token_ids: list[int] = []
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    def validate(self, vocab_size: int) -> None:
        """Raise InvalidRequestError naming the first field that is out of range for a vocabulary of vocab_size."""
        check = _check
        check("n", self.n, 1, MAX_N)
        if self.max_tokens is not None:
            check("max_tokens", self.max_tokens, 1, math.inf)
        check("min_tokens", self.min_tokens, 0, self.max_tokens if self.max_tokens is not None else math.inf)
        check("temperature", self.temperature, 0.0, MAX_TEMPERATURE)
        check("top_k", self.top_k, -1, math.inf)
        check("top_p", self.top_p, 0.0, 1.0, low_open=True)
        check("min_p", self.min_p, 0.0, 1.0)
        check("repetition_penalty", self.repetition_penalty, 0.0, 100.0, low_open=True)
        check("presence_penalty", self.presence_penalty, -2.0, 2.0)
        check("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        if self.seed is not None:
            check("seed", self.seed, -_SEED_LIMIT, _SEED_LIMIT - 1)
        for field in ("logprobs", "prompt_logprobs"):
            value = getattr(self, field)
            if value is not None:
                check(field, value, 0, MAX_LOGPROBS)
        self._validate_stops(vocab_size)
        self._validate_bias(vocab_size)
        if self.n > 1 and self.is_greedy:
            raise InvalidRequestError(
                f"n must be 1 when temperature is 0 (got n={self.n}): all choices would be equal; raise temperature or set n=1",
                param="n",
            )

    def _validate_stops(self, vocab_size: int) -> None:
        if len(self.stop) > MAX_STOP_STRINGS:
            raise InvalidRequestError(
                f"stop has {len(self.stop)} strings; at most {MAX_STOP_STRINGS} are allowed", param="stop"
            )
        for text in self.stop:
            if not text:
                raise InvalidRequestError("stop contains an empty string; remove it", param="stop")
            if len(text) > MAX_STOP_LENGTH:
                raise InvalidRequestError(
                    f"a stop string has {len(text)} characters; at most {MAX_STOP_LENGTH} are allowed", param="stop"
                )
        if len(self.stop_token_ids) > MAX_LOGIT_BIAS:
            raise InvalidRequestError(f"stop_token_ids has more than {MAX_LOGIT_BIAS} entries", param="stop_token_ids")
        for token_id in self.stop_token_ids:
            _check_token("stop_token_ids", token_id, vocab_size)

    def _validate_bias(self, vocab_size: int) -> None:
        bias = self.logit_bias or {}
        if len(bias) > MAX_LOGIT_BIAS:
            raise InvalidRequestError(
                f"logit_bias has {len(bias)} entries; at most {MAX_LOGIT_BIAS} are allowed", param="logit_bias"
            )
        for token_id, value in bias.items():
            _check_token("logit_bias", token_id, vocab_size)
            _check("logit_bias", value, -100.0, 100.0)


def _check_token(field: str, token_id: int, vocab_size: int) -> None:
    if not 0 <= token_id < vocab_size:
        raise InvalidRequestError(
            f"{field} names token id {token_id}; the vocabulary has ids 0..{vocab_size - 1}",
            param=field,
            code="token_out_of_range",
        )


def _check(field: str, value: Any, low: float, high: float, *, low_open: bool = False) -> None:
    """Raise unless value is a finite number within [low, high] (or (low, high] with low_open)."""
    ok = math.isfinite(value) and value <= high and (value > low if low_open else value >= low)
    if not ok:
        left = "(" if low_open else "["
        raise InvalidRequestError(f"{field} is {value}; it must be in {left}{low}, {high}]", param=field)
