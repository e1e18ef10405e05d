"""InputProcessor: a prompt and its sampling parameters become a Request, or a clear refusal. All three faces use it."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from octavo.config.model import ModelConfig
from octavo.config.scheduler import PRIORITY_POLICIES
from octavo.engine.frontend.bad_words import bad_words_ids
from octavo.engine.frontend.pooling import EmbeddingForm
from octavo.engine.frontend.prompt import Prompt, PromptParts, read_prompt
from octavo.errors import ContextLengthError, InvalidRequestError
from octavo.grammar.forms import Forms
from octavo.grammar.spelling import free_spelling
from octavo.grammar.tokens import TokenTable, token_table
from octavo.pooling_params import Pooling, PoolingParams
from octavo.request import MAX_REQUEST_ID_LENGTH, NO_OPTIONS, Request, RequestOptions
from octavo.sampling_params import SamplingParams
from octavo.text.tokenizer import Tokenizer
from octavo.text.truncation import MAX_CUT, Truncation, truncated


def seeds(seed: int | None) -> Callable[[], int]:
    """Where the seeds of requests come from that bring none, 63 bits each: a sequence that `seed` fixes, or anywhere."""
    return partial(secrets.randbits if seed is None else random.Random(seed).getrandbits, 63)


ANY_SEEDS = seeds(None)
_LONG_ROPE_SALT = "\0longrope"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request fit for the core, and the prompt's text (None when ids were given).

    embedding   what is made of the vector, for a request that is pooled
    """

    request: Request
    prompt: str | None
    embedding: EmbeddingForm | None = None


def require_text_model(model: ModelConfig) -> None:
    """Raise InvalidRequestError for a model that generates no text."""
    if not model.has_head:
        raise InvalidRequestError(
            "this model makes embeddings and generates no text: it has no output head. Use /v1/embeddings, /v1/rerank or "
            "/v1/score, or LLM.embed in Python",
            param="model",
            code="model_generates_no_text",
        )


def eos_token_ids(model: ModelConfig, tokenizer: Tokenizer) -> list[int]:
    """The ends of sequence that the model's files name, each once."""
    return list(dict.fromkeys((*model.eos_token_ids, *tokenizer.eos_token_ids)))


class InputProcessor:
    """Checks everything a request may get wrong, so that the core need not. Safe to use from several threads.

    scheduler_policy  the one in force; to be set anew when it is swapped, so that no priority is taken and then ignored
    forms        checks what answers are to be like; one of its own without it
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
        forms: Forms | None = None,
    ) -> None:
        self.forms = forms or Forms()
        self._model = model
        self._tokenizer = tokenizer
        self._vocab_size = model.vocab_size
        self.eos_token_ids = eos_token_ids(model, tokenizer)
        self._max_model_len = max_model_len
        self._longest_short_prompt = model.rope.longest_short_prompt(max_model_len)
        self.scheduler_policy = scheduler_policy
        self._random_seed = random_seed

    def prepare(
        self,
        prompt: Prompt,
        params: SamplingParams | PoolingParams,
        request_id: str,
        options: RequestOptions = NO_OPTIONS,
        *,
        arrival_s: float,
    ) -> Prepared:
        """Raises InvalidRequestError or ContextLengthError naming the field; tokenises, so long texts take milliseconds. A form
        that `forms` does not know yet may take seconds."""
        if not isinstance(params, PoolingParams):
            require_text_model(self._model)
        parts = read_prompt(prompt)
        if parts.cache_salt is not None:
            options = replace(options, cache_salt=parts.cache_salt)
        self._check_envelope(request_id, options)
        if isinstance(params, PoolingParams):
            return self._prepare_pooled(parts, params, request_id, options, arrival_s)
        sampling = self._checked_sampling(params)
        grammar = self._take_grammar(sampling)
        token_ids = self.token_ids(parts, sampling)
        room = self.room(len(token_ids))
        # What has a form ends with it, and there the end is all that may come.
        stop_token_ids = [] if sampling.ignore_eos and not grammar else self.eos_token_ids
        request = Request(
            request_id=request_id,
            prompt_token_ids=token_ids,
            sampling=sampling,
            seed=sampling.seed if sampling.seed is not None else self._random_seed(),
            max_tokens=room if sampling.max_tokens is None else min(sampling.max_tokens, room),
            stop_token_ids=sorted({*stop_token_ids, *sampling.stop_token_ids}),
            arrival_s=arrival_s,
            cache_salt=self._cache_salt(options.cache_salt, len(token_ids)),
            priority=options.priority,
            tenant=options.tenant,
            deadline_s=None if options.timeout_s is None else arrival_s + options.timeout_s,
            grammar=grammar,
            predicted_token_ids=self._predicted(options.prediction),
        )
        return Prepared(request, parts.text)

    def _prepare_pooled(
        self, parts: PromptParts, params: PoolingParams, request_id: str, options: RequestOptions, arrival_s: float
    ) -> Prepared:
        params.validate(self._model.hidden_size, self._max_model_len)
        token_ids = self._pooled_token_ids(parts, params.truncate_prompt_tokens)
        if len(token_ids) > self._max_model_len:
            found = f"the prompt has {len(token_ids)} tokens"
            raise ContextLengthError.of_prompt(found, self._max_model_len, "prompt", "truncate_prompt_tokens")
        request = Request(
            request_id=request_id,
            prompt_token_ids=token_ids,
            sampling=SamplingParams(),
            seed=0,
            max_tokens=0,
            stop_token_ids=[],
            arrival_s=arrival_s,
            cache_salt=self._cache_salt(options.cache_salt, len(token_ids)),
            priority=options.priority,
            tenant=options.tenant,
            deadline_s=None if options.timeout_s is None else arrival_s + options.timeout_s,
            pooling=Pooling(self._model.pooling.kind, whole=not self._model.causal),
        )
        return Prepared(request, parts.text, EmbeddingForm.of(params, self._model.pooling))

    def token_table(self) -> TokenTable:
        """What the core needs to know before the first request with a grammar; it takes some tenths of a second."""
        return token_table(self._tokenizer, self.eos_token_ids, self._vocab_size)

    def _predicted(self, text: str) -> list[int]:
        """A prediction is the text of an answer, so that it cannot be longer than the context. Raises ContextLengthError."""
        if not text:
            return []
        self._tokenizer.require_fits(text, self._max_model_len, "prediction")
        token_ids = self._tokenizer.encode(text, add_special_tokens=False, parse_special=False)
        return token_ids[: self._max_model_len] if max(token_ids, default=0) < self._vocab_size else []

    def _take_grammar(self, sampling: SamplingParams) -> str:
        """The grammar of what the answer is to be like, instead of that. "": anything."""
        asked, sampling.structured_outputs = sampling.structured_outputs, None
        grammar = "" if asked is None else self.forms.grammar(asked)
        if grammar and not self.eos_token_ids:
            raise InvalidRequestError(
                "structured_outputs needs a model with an end-of-sequence token; this one has none", param="structured_outputs"
            )
        if grammar and (sampling.bad_words or sampling.allowed_token_ids is not None):
            return free_spelling(grammar)  # of several spellings one may be allowed
        return grammar

    def _cache_salt(self, given: str, num_prompt: int) -> str:
        """Another one for prompts that are computed with the long factors of longrope: equal tokens have other keys there."""
        is_long = self._longest_short_prompt is not None and num_prompt > self._longest_short_prompt
        return given + _LONG_ROPE_SALT if is_long else given

    def _check_envelope(self, request_id: str, options: RequestOptions) -> None:
        if not isinstance(request_id, str) or not 0 < len(request_id) <= MAX_REQUEST_ID_LENGTH:
            raise InvalidRequestError(f"request_id must be a text of 1..{MAX_REQUEST_ID_LENGTH} characters", param="request_id")
        if not isinstance(options, RequestOptions):
            raise InvalidRequestError(f"options must be RequestOptions, not {type(options).__name__}", param="options")
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

    def token_ids(self, prompt: PromptParts, sampling: SamplingParams | None = None) -> list[int]:
        """Checked token ids of a prompt, cut as sampling says. Raises InvalidRequestError or ContextLengthError."""
        asked = None if sampling is None else sampling.truncate_prompt_tokens
        if sampling is None or asked is None:
            return self._all_token_ids(prompt, self._max_model_len)
        sampling.truncate_prompt_tokens = None
        truncation = Truncation.asked(asked, "left", self._max_model_len, sampling.max_tokens)
        token_ids = self._all_token_ids(prompt, max(self._max_model_len, MAX_CUT))
        return truncation.cut(token_ids, self._tokenizer.spec.prefix_ids if prompt.token_ids is None else ())

    def _pooled_token_ids(self, prompt: PromptParts, max_kept: int | None) -> list[int]:
        """max_kept: see PoolingParams.truncate_prompt_tokens."""
        token_ids = self._all_token_ids(prompt, self._max_model_len if max_kept is None else None)
        if max_kept is None:
            return token_ids
        limit = self._max_model_len if max_kept == -1 else max_kept
        return truncated(token_ids, limit, self._tokenizer.spec.suffix_ids if prompt.token_ids is None else ())

    def _all_token_ids(self, prompt: PromptParts, limit: int | None) -> list[int]:
        token_ids = prompt.token_ids
        if token_ids is None:
            assert prompt.text is not None
            if limit is not None:
                self._tokenizer.require_fits(prompt.text, limit, "prompt")
            token_ids = self._tokenizer.encode(prompt.text)
            if not token_ids:
                raise InvalidRequestError("the prompt is empty: it has no tokens; give at least one", param="prompt")
        self._check_vocabulary(token_ids)
        return token_ids

    def _check_vocabulary(self, token_ids: list[int]) -> None:
        """Ids that were given, and those of a text: a tokenizer may know added tokens that the model has no row for."""
        lowest, highest = min(token_ids), max(token_ids)
        if lowest < 0 or highest >= self._vocab_size:
            raise InvalidRequestError(
                f"the prompt holds token id {lowest if lowest < 0 else highest}; the model has ids 0 to {self._vocab_size - 1}",
                param="prompt",
                code="token_out_of_range",
            )

    def room(self, num_prompt: int) -> int:
        """Tokens that the context leaves. Raises ContextLengthError if there are none."""
        room = self._max_model_len - num_prompt
        if room < 1:
            raise ContextLengthError.of(f"the prompt has {num_prompt} tokens", self._max_model_len, "prompt")
        return room
