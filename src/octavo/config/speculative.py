"""SpeculationConfig: what --speculative-config asks for, with vLLM's keys."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from octavo.errors import ConfigError
from octavo.sampling_params import MAX_SPECULATIVE_TOKENS

DEFAULT_SPECULATIVE_TOKENS = 8
DEFAULT_LOOKUP_MIN = 3
DEFAULT_LOOKUP_MAX = 5
MAX_LOOKUP = 64

_NGRAM = ("ngram", "[ngram]")
_NUMBERS = {
    "num_speculative_tokens": (0, MAX_SPECULATIVE_TOKENS),
    "prompt_lookup_min": (1, MAX_LOOKUP),
    "prompt_lookup_max": (1, MAX_LOOKUP),
    "disable_by_batch_size": (1, 2**31),
}
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "draft_tensor_parallel_size": (1,),
    "enforce_eager": (True, False),
    "disable_logprobs": (False,),
    "disable_padded_drafter_batch": (True, False),
    "acceptance_method": ("rejection_sampler",),
    "max_model_len": (),
    "quantization": (),
    "revision": (),
    "code_revision": (),
    "speculative_token_tree": (),
    "parallel_drafting": (False,),
}
"""Keys of vLLM that choose nothing here, with the values that ask for nothing besides null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationConfig:
    """Guesses from the text itself (n-gram lookup).

    num_speculative_tokens  most guesses of one sequence in one step; 0: only requests that ask for them have any
    prompt_lookup_min       tokens at the end of a text that must have stood in it before
    prompt_lookup_max       of several such places the one where most tokens agree is taken; more than this many are no better
    disable_by_batch_size   with so many running sequences or more nothing is guessed; None: that is left to what pays
    """

    num_speculative_tokens: int = 0
    prompt_lookup_min: int = DEFAULT_LOOKUP_MIN
    prompt_lookup_max: int = DEFAULT_LOOKUP_MAX
    disable_by_batch_size: int | None = None


def speculation_of(text: str | None) -> SpeculationConfig:
    """--speculative-config as values; without it only requests that ask for guesses have any. Raises ConfigError."""
    if text is None or not text.strip():
        return SpeculationConfig()
    given = {key: value for key, value in _read(text).items() if value is not None}
    method, model = given.pop("method", None), given.pop("model", None)
    _check_method(method, model)
    numbers: dict[str, int] = {}
    for key, value in given.items():
        if key in _NUMBERS:
            numbers[key] = _number(key, value, *_NUMBERS[key])
        elif key not in _NEUTRAL:
            raise _error(f"it has the key {key[:100]!r}; known: method, {', '.join(_NUMBERS)}")
        elif value not in _NEUTRAL[key]:
            raise _error(f"{key} is {str(value)[:100]!r}; n-gram guesses have no such thing, leave it out")
    low, high = numbers.get("prompt_lookup_min"), numbers.get("prompt_lookup_max")
    if low is not None and high is not None and low > high:
        raise _error(f"prompt_lookup_min is {low}, more than prompt_lookup_max, {high}")
    low = low if low is not None else min(DEFAULT_LOOKUP_MIN, high or DEFAULT_LOOKUP_MIN)
    return SpeculationConfig(
        num_speculative_tokens=numbers.get("num_speculative_tokens", DEFAULT_SPECULATIVE_TOKENS),
        prompt_lookup_min=low,
        prompt_lookup_max=high if high is not None else max(DEFAULT_LOOKUP_MAX, low),
        disable_by_batch_size=numbers.get("disable_by_batch_size"),
    )


def _check_method(method: object, model: object) -> None:
    if method in _NGRAM or (method is None and model in _NGRAM):
        if model is None or model in _NGRAM:
            return
        raise _error(f"method ngram reads no model, but model is {str(model)[:100]!r}; leave it out")
    if method is None and model is None:
        raise _error('it names no method; the one that is there is {"method": "ngram"}')
    named = f"method {str(method)[:100]!r}" if method is not None else f"a draft model ({str(model)[:100]!r})"
    raise _error(f'{named} is not supported; the one that is there is {{"method": "ngram"}}')


def _number(key: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _error(f"{key} is {str(value)[:100]!r}; it must be a whole number from {low} to {high}")
    return value


def _read(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise _error(f"it is {text[:100]!r}; it must be a JSON object")
    return values


def _error(message: str) -> ConfigError:
    return ConfigError(f"--speculative-config: {message}", param="speculative_config")
