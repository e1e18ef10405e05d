"""SamplingParams: how the next token is chosen and when a request ends. Names and meanings follow vLLM and OpenAI."""

from __future__ import annotations

import enum
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from octavo.errors import InvalidRequestError
from octavo.structured_outputs import StructuredOutputsParams

MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 512
MAX_BAD_WORDS = 256
MAX_LOGIT_BIAS = 1024
MAX_BIAS = 100.0
MAX_ALLOWED_TOKENS = 1 << 19
MAX_LOGPROBS = 20
MAX_N = 64
MAX_TEMPERATURE = 100.0
MAX_SPECULATIVE_TOKENS = 32
"""Guesses of one sequence in one step; a step has no room for more."""
_INT64 = 2**63 - 1


class RequestOutputKind(enum.Enum):
    """What each delivery holds: everything so far, only what is new, or one delivery at the end."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


class SamplingParams(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Sampling settings of one request. None means the default; every field is checked when the object is made.

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
    logit_bias          token id (an integer, or its digits) -> value added to its logit; beyond -100..100 it is cut to that
    allowed_token_ids   None, or the only token ids that may be chosen; a form, if there is one, allows still fewer
    bad_words           texts that are not generated: the last token of one is masked where those before it stand already
    stop                strings that end the output; not part of it unless include_stop_str_in_output. One text is a list of one
    stop_token_ids      token ids that end the output, besides the model's own end-of-sequence ids
    ignore_eos          do not end at the model's end-of-sequence ids
    logprobs            None, or how many top alternatives (0..20) to report besides the chosen token, per output token.
                        Values are log-softmax of the raw logits, before bias, penalties and temperature.
    prompt_logprobs     the same for every prompt token but the first; such a request reads nothing from the prefix cache
    detokenize          False leaves the text empty; stop strings need the text
    skip_special_tokens leave control tokens out of the text
    spaces_between_special_tokens  both values give the same text: control tokens stand in it as they are
    structured_outputs  the form the output is held to: StructuredOutputsParams, or a mapping of its fields
    num_speculative_tokens  most guesses of the next tokens that one step verifies; 0: none; None: what the engine is set to. No
                        value changes a token of the output
    truncate_prompt_tokens  most tokens of the prompt that are kept, its last ones; -1: as many as the context leaves
    output_kind         what each delivery of LLMEngine and AsyncLLMEngine holds; LLM always delivers once

    The fields in `ABSENT` are vLLM's; only the values that ask for nothing are taken. bad_words_ids is the engine's: the token
    ids that bad_words come to. shown_token_ids is the server's: control tokens that stand in the text in spite of
    skip_special_tokens, for those who look for them there.
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
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] = []
    stop: list[str] = []
    stop_token_ids: list[int] = []
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    structured_outputs: StructuredOutputsParams | None = None
    num_speculative_tokens: int | None = None
    truncate_prompt_tokens: int | None = None
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    bad_words_ids: list[list[int]] = []
    shown_token_ids: list[int] = []
    best_of: Any = None
    use_beam_search: Any = None
    length_penalty: Any = None
    early_stopping: Any = None
    logits_processors: Any = None
    guided_decoding: Any = None
    extra_args: Any = None

    def __post_init__(self) -> None:
        """Raises InvalidRequestError naming the first field of a wrong type or out of range."""
        for name, (kind, low, high, low_open) in NUMBERS.items():
            value, default = getattr(self, name), _DEFAULTS[name]
            if value is not default:
                setattr(self, name, default if value is None else _number(name, value, kind, low, high, low_open))
        for name in _SWITCHES:
            value, default = getattr(self, name), _DEFAULTS[name]
            if value is not default:
                setattr(self, name, _switch(name, default if value is None else value))
        self.stop = _texts("stop", self.stop, MAX_STOP_STRINGS)
        self.bad_words = _texts("bad_words", self.bad_words, MAX_BAD_WORDS)
        self.stop_token_ids = _token_ids("stop_token_ids", self.stop_token_ids, MAX_LOGIT_BIAS)
        if self.allowed_token_ids is not None:
            self.allowed_token_ids = _allowed(self.allowed_token_ids)
        self.logit_bias = _bias(self.logit_bias)
        if self.output_kind is None:
            self.output_kind = RequestOutputKind.CUMULATIVE
        elif not isinstance(self.output_kind, RequestOutputKind):
            raise _wrong("output_kind", self.output_kind, "one of RequestOutputKind.CUMULATIVE, DELTA and FINAL_ONLY")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequestError(
                f"min_tokens is {self.min_tokens}, more than max_tokens, {self.max_tokens}", param="min_tokens"
            )
        if self.stop and not self.detokenize:
            raise InvalidRequestError("stop needs the text, so detokenize must not be False", param="stop")
        if self.structured_outputs is not None:
            self.structured_outputs = StructuredOutputsParams.checked(self.structured_outputs)
        self._refuse_absent()

    def clone(self) -> SamplingParams:
        """A copy that shares nothing with this one, checked anew: fields may have been set since."""
        return msgspec.structs.replace(self)

    def validate(self, vocab_size: int) -> None:
        """Raise InvalidRequestError if a token id is beyond a vocabulary of vocab_size."""
        for token_id in self.stop_token_ids:
            _check_token("stop_token_ids", token_id, vocab_size)
        for token_id in self.logit_bias or ():
            _check_token("logit_bias", token_id, vocab_size)
        if self.allowed_token_ids is not None:
            _check_token("allowed_token_ids", self.allowed_token_ids[-1], vocab_size)

    def _refuse_absent(self) -> None:
        for name, (neutral, instead) in ABSENT.items():
            value = getattr(self, name)
            if value is None:
                continue
            if value not in neutral and not (name == "best_of" and value == self.n):
                raise InvalidRequestError(f"{name} is not supported; {instead}", param=name, code="unsupported_field")
            setattr(self, name, None)


ABSENT: dict[str, tuple[tuple[Any, ...], str]] = {
    "best_of": ((), "use n, and choose among the outputs by cumulative_logprob"),
    "use_beam_search": ((False,), "call LLM.beam_search with BeamSearchParams"),
    "length_penalty": ((1.0,), "it belongs to beam search: see BeamSearchParams"),
    "early_stopping": ((False,), "a beam search ends with max_tokens, or when no beam is left"),
    "logits_processors": (
        ([],),
        "the sampler is native and calls no Python: use logit_bias, allowed_token_ids, bad_words or structured_outputs",
    ),
    "guided_decoding": ((), "use structured_outputs"),
    "extra_args": (({},), "no plug-in reads it"),
}
"""Fields of vLLM's SamplingParams that are not here: the values that ask for nothing, and what to do instead."""

NUMBERS: dict[str, tuple[type, float, float | None, bool]] = {
    "n": (int, 1, MAX_N, False),
    "max_tokens": (int, 1, _INT64, False),
    "min_tokens": (int, 0, _INT64, False),
    "temperature": (float, 0, MAX_TEMPERATURE, False),
    "top_k": (int, -1, None, False),
    "top_p": (float, 0, 1, True),
    "min_p": (float, 0, 1, False),
    "repetition_penalty": (float, 0, 100, True),
    "presence_penalty": (float, -2, 2, False),
    "frequency_penalty": (float, -2, 2, False),
    "seed": (int, -_INT64 - 1, _INT64, False),
    "logprobs": (int, 0, MAX_LOGPROBS, False),
    "prompt_logprobs": (int, 0, MAX_LOGPROBS, False),
    "num_speculative_tokens": (int, 0, MAX_SPECULATIVE_TOKENS, False),
    "truncate_prompt_tokens": (int, -1, None, False),
}
"""Field -> type, lowest and highest value, and whether the lowest is excluded."""
_SWITCHES = (
    "include_stop_str_in_output",
    "ignore_eos",
    "detokenize",
    "skip_special_tokens",
    "spaces_between_special_tokens",
)
_DEFAULTS: dict[str, Any] = dict(
    zip(reversed(SamplingParams.__struct_fields__), reversed(SamplingParams.__struct_defaults__), strict=False)
)
# None is a meaning of its own: as many tokens as fit.
_DEFAULTS["max_tokens"] = None


def _number(name: str, value: Any, kind: type, low: float, high: float | None, low_open: bool) -> Any:
    """value as kind, within [low, high] (or (low, high] with low_open). 5.0 is a whole number, True is none."""
    noun = "a whole number" if kind is int else "a number"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise _wrong(name, value, noun)
    if not isinstance(value, int) and (not math.isfinite(value) or (kind is int and value % 1)):
        raise _wrong(name, value, f"{noun}, {range_text(low, high, low_open)}")
    if kind is float and isinstance(value, int) and abs(value) > _INT64:
        raise _wrong(name, value, range_text(low, high, low_open))
    checked = kind(value)
    if checked < low or (low_open and checked == low) or (high is not None and checked > high):
        raise _wrong(name, value, range_text(low, high, low_open))
    return checked


def range_text(low: float, high: float | None, low_open: bool) -> str:
    """The allowed values in words; a limit of 64 bits is no limit for a reader."""
    if high is None or high == _INT64:
        return "a whole number of 64 bits" if low < -1 else f"{low:g} or more"
    return f"above {low:g} and at most {high:g}" if low_open else f"{low:g} to {high:g}"


def _wrong(name: str, value: Any, wanted: str) -> InvalidRequestError:
    shown = repr(value)
    return InvalidRequestError(f"{name} is {shown[:100]}{'...' * (len(shown) > 100)}; it must be {wanted}", param=name)


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, value, "True or False")
    return value


def _texts(name: str, value: Any, most: int) -> list[str]:
    """A fresh list of texts, none of them empty or long; one text is a list of one."""
    if value is None:
        return []
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise _wrong(name, value, "a text or a list of texts")
    if len(texts) > most:
        raise InvalidRequestError(f"{name} has {len(texts)} texts; at most {most} are allowed", param=name)
    for text in texts:
        if not text:
            raise InvalidRequestError(f"{name} contains an empty text; remove it", param=name)
        if len(text) > MAX_STOP_LENGTH:
            raise InvalidRequestError(
                f"{name} contains a text of {len(text)} characters; at most {MAX_STOP_LENGTH} are allowed", param=name
            )
    return list(texts)


def _token_ids(name: str, value: Any, most: int) -> list[int]:
    if value is None:
        return []
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
        raise _wrong(name, value, "a list of token ids")
    if len(value) > most:
        raise InvalidRequestError(f"{name} has {len(value)} entries; at most {most} are allowed", param=name)
    if all(type(token_id) is int and 0 <= token_id <= _INT64 for token_id in value):
        return list(value)
    return [_number(name, token_id, int, 0, _INT64, False) for token_id in value]


def _allowed(value: Any) -> list[int]:
    """In order, each once; the last is the highest."""
    token_ids = sorted(set(_token_ids("allowed_token_ids", value, MAX_ALLOWED_TOKENS)))
    if not token_ids:
        raise InvalidRequestError(
            "allowed_token_ids is empty: no token could be chosen; name some, or leave it out", param="allowed_token_ids"
        )
    return token_ids


def _bias(value: Any) -> dict[int, float] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise _wrong("logit_bias", value, "a mapping of token ids to numbers")
    if len(value) > MAX_LOGIT_BIAS:
        raise InvalidRequestError(
            f"logit_bias has {len(value)} entries; at most {MAX_LOGIT_BIAS} are allowed", param="logit_bias"
        )
    return {_bias_key(key): _bias_value(bias) for key, bias in value.items()}


def _bias_value(value: Any) -> float:
    """The nearest number in [-MAX_BIAS, MAX_BIAS], as in vLLM: at its ends a token comes always or never already."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or value != value:
        raise _wrong("logit_bias", value, "a number")
    number: Any = value
    return float(max(-MAX_BIAS, min(MAX_BIAS, number)))


def _bias_key(key: Any) -> int:
    """A token id; JSON writes it as text."""
    if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= 18:
        return int(key)
    if isinstance(key, bool) or not isinstance(key, numbers.Integral) or key < 0:
        raise InvalidRequestError(f"logit_bias has the key {str(key)[:32]!r}; keys are token ids", param="logit_bias")
    return int(key)


def _check_token(field: str, token_id: int, vocab_size: int) -> None:
    if not 0 <= token_id < vocab_size:
        raise InvalidRequestError(
            f"{field} names token id {token_id}; the vocabulary has ids 0 to {vocab_size - 1}",
            param=field,
            code="token_out_of_range",
        )
