"""InputProcessor: a prompt and its sampling parameters become a Request, or a clear refusal. All three faces use it."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from octavo.config.model import ModelConfig
from octavo.config.scheduler import PRIORITY_POLICIES
from octavo.engine.frontend.bad_words import bad_words_ids
from octavo.errors import ContextLengthError, InvalidRequestError
from octavo.request import MAX_REQUEST_ID_LENGTH, NO_OPTIONS, Request, RequestOptions
from octavo.sampling_params import SamplingParams
from octavo.text.tokenizer import Tokenizer

Prompt = str | Sequence[int] | Mapping[str, Any]
"""Text, token ids, or vLLM's {"prompt": text} and {"prompt_token_ids": ids}."""


def seeds(seed: int | None) -> Callable[[], int]:
    """Where the seeds of requests come from that bring none, 63 bits each: a sequence that `seed` fixes, or anywhere."""
    return partial(secrets.randbits if seed is None else random.Random(seed).getrandbits, 63)


ANY_SEEDS = seeds(None)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request fit for the core, and the prompt's text (None when ids were given)."""

    request: Request
    prompt: str | None


class InputProcessor:
    """Checks everything a request may get wrong, so that the core need not. Safe to use from several threads.

    scheduler_policy  the one in force; to be set anew when it is swapped, so that no priority is taken and then ignored
    random_seed  draws the seed of requests that bring none; below 2**63
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        model: ModelConfig,
        max_model_len: int,
        *,
        scheduler_policy: str = "fcfs",
        random_seed: Callable[[], int] = ANY_SEEDS,
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = model.vocab_size
        self._eos_token_ids = list(dict.fromkeys((*model.eos_token_ids, *tokenizer.eos_token_ids)))
        self._max_model_len = max_model_len
        self.scheduler_policy = scheduler_policy
        self._random_seed = random_seed

    def prepare(
        self,
        prompt: Prompt,
        sampling: SamplingParams,
        request_id: str,
        options: RequestOptions = NO_OPTIONS,
        *,
        arrival_s: float,
    ) -> Prepared:
        """Raises InvalidRequestError or ContextLengthError naming the field; tokenises, so long texts take milliseconds."""
        self._check_envelope(request_id, options)
        sampling = self._checked_sampling(sampling)
        text, token_ids = self._token_ids(prompt)
        max_tokens = self._max_tokens(len(token_ids), sampling.max_tokens)
        if sampling.min_tokens > max_tokens:
            raise InvalidRequestError(
                f"min_tokens is {sampling.min_tokens}, but at most {max_tokens} fit after {len(token_ids)} prompt tokens",
                param="min_tokens",
            )
        stop_token_ids = [] if sampling.ignore_eos else self._eos_token_ids
        request = Request(
            request_id=request_id,
            prompt_token_ids=token_ids,
            sampling=sampling,
            seed=sampling.seed if sampling.seed is not None else self._random_seed(),
            max_tokens=max_tokens,
            stop_token_ids=sorted({*stop_token_ids, *sampling.stop_token_ids}),
            arrival_s=arrival_s,
            cache_salt=options.cache_salt,
            priority=options.priority,
            tenant=options.tenant,
            deadline_s=None if options.timeout_s is None else arrival_s + options.timeout_s,
        )
        return Prepared(request, text)

    def _check_envelope(self, request_id: str, options: RequestOptions) -> None:
        if not isinstance(request_id, str) or not 0 < len(request_id) <= MAX_REQUEST_ID_LENGTH:
            raise InvalidRequestError(f"request_id must be a text of 1..{MAX_REQUEST_ID_LENGTH} characters", param="request_id")
        options.validate()
        if options.priority and self.scheduler_policy not in PRIORITY_POLICIES:
            raise InvalidRequestError(
                f"priority is {options.priority}, but the scheduler policy {self.scheduler_policy} would ignore it; "
                "leave it out, or choose --scheduler-policy priority",
                param="priority",
            )

    def _checked_sampling(self, sampling: SamplingParams) -> SamplingParams:
        """A private copy, checked against the vocabulary, with bad_words as token ids."""
        if not isinstance(sampling, SamplingParams):
            raise InvalidRequestError(
                f"sampling parameters must be a SamplingParams, not {type(sampling).__name__}", param="sampling_params"
            )
        checked = sampling.clone()
        checked.validate(self._vocab_size)
        if checked.top_k >= self._vocab_size:
            checked.top_k = 0  # both keep every token; huge values do not fit the worker's arrays
        checked.bad_words_ids = bad_words_ids(checked.bad_words, self._tokenizer)
        return checked

    def _token_ids(self, prompt: Prompt) -> tuple[str | None, list[int]]:
        """(text, token ids) of a prompt in any accepted form."""
        content: object = prompt
        if isinstance(prompt, Mapping):
            content = prompt.get("prompt_token_ids", prompt.get("prompt"))
        if isinstance(content, str):
            self._tokenizer.require_fits(content, self._max_model_len, "prompt")
            token_ids = self._tokenizer.encode(content)
            if not token_ids:
                raise InvalidRequestError("the prompt is empty: it has no tokens; give at least one", param="prompt")
            self._check_vocabulary(token_ids)
            return content, token_ids
        if isinstance(content, (bytes, Mapping)) or not isinstance(content, Sequence):
            raise InvalidRequestError(
                f"a prompt must be text or a list of token ids, not {type(content).__name__}", param="prompt"
            )
        token_ids = list(content)
        if not token_ids:
            raise InvalidRequestError("the prompt is empty; give at least one token id", param="prompt")
        if not set(map(type, token_ids)) <= {int}:
            raise InvalidRequestError("a prompt of token ids must hold integers only", param="prompt")
        self._check_vocabulary(token_ids)
        return None, token_ids

    def _check_vocabulary(self, token_ids: list[int]) -> None:
        """Ids that were given, and those of a text: a tokenizer may know added tokens that the model has no row for."""
        lowest, highest = min(token_ids), max(token_ids)
        if lowest < 0 or highest >= self._vocab_size:
            raise InvalidRequestError(
                f"the prompt holds token id {lowest if lowest < 0 else highest}; the model has ids 0 to {self._vocab_size - 1}",
                param="prompt",
                code="token_out_of_range",
            )

    def _max_tokens(self, num_prompt: int, asked: int | None) -> int:
        """The completion's limit: as asked, or all that is left of the context. Refuses what cannot fit."""
        limit = self._max_model_len
        if num_prompt >= limit:
            raise ContextLengthError(
                f"the prompt has {num_prompt} tokens; with at least one completion token it must fit the context of {limit} "
                f"tokens; shorten the prompt to {limit - 1} tokens or less, or serve with a larger --max-model-len",
                param="prompt",
            )
        if asked is None:
            return limit - num_prompt
        if num_prompt + asked > limit:
            raise ContextLengthError(
                f"the prompt's {num_prompt} tokens and max_tokens {asked} make {num_prompt + asked}, more than the context of "
                f"{limit} tokens; lower max_tokens to {limit - num_prompt} or shorten the prompt",
                param="max_tokens",
            )
        return asked
