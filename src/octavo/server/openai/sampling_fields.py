"""The request fields that chat and completions share, and how they become SamplingParams."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from octavo.errors import InvalidRequestError
from octavo.request import MAX_TIMEOUT_S, RequestOptions
from octavo.sampling_params import SamplingParams
from octavo.server.body import Body, CacheSalt, Count, Int32, Int64, ModelName, Tenant
from octavo.server.described import StopTexts
from octavo.server.openai.structured_fields import StructuredFields, asked_form
from octavo.server.service.service import Service
from octavo.structured_outputs import StructuredOutputsParams
from octavo.text.truncation import Truncation


class StreamOptions(Body):
    """include_usage adds a last chunk with the usage; continuous_usage_stats puts the usage so far into every other, too."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None
    """Padding against listeners on the way, which OpenAI adds. Nothing is ever added here."""


class TruncationFields(Body):
    """truncate_prompt_tokens: most tokens of the prompt that are kept, -1: as many as the context leaves beside the answer."""

    truncate_prompt_tokens: Int32 | None = None
    truncation_side: Literal["left", "right"] | None = None


def truncation(fields: TruncationFields, service: Service, max_tokens: int | None) -> Truncation | None:
    """How the prompt is to be cut; None: not at all. Raises InvalidRequestError."""
    asked = fields.truncate_prompt_tokens
    if asked is None:
        if fields.truncation_side is not None:
            raise InvalidRequestError("truncation_side needs truncate_prompt_tokens", param="truncation_side")
        return None
    return Truncation.asked(asked, fields.truncation_side or "left", service.max_model_len, max_tokens)


class SamplingFields(StructuredFields, TruncationFields):
    """Fields common to both endpoints. Bounds that SamplingParams.validate knows are left to it.

    use_beam_search  n is the number of beams, see beam_fields
    return_token_ids  the answer holds the token ids of prompt and text
    return_tokens_as_token_ids  tokens in logprobs are "token_id:N" instead of text
    num_speculative_tokens  most guesses that one step verifies, 0: none. It changes the time, and no byte of the answer
    timeout  seconds after which the answer ends with what there is: finish_reason "length", stop_reason "timeout"
    user     whose request it is, where no list of API keys says so (see --scheduler-policy fair)
    """

    model: ModelName | None = None
    n: Int32 | None = None
    best_of: Int32 | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Int32 | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: Int64 | None = None
    stop: StopTexts = None
    stop_token_ids: list[Count] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    min_tokens: Count | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[Count] | None = None
    bad_words: list[str] | None = None
    detokenize: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    prompt_logprobs: Int32 | None = None
    cache_salt: CacheSalt | None = None
    priority: Int32 | None = None
    timeout: Annotated[float, Field(gt=0, le=MAX_TIMEOUT_S)] | None = None
    user: Tenant | None = None
    num_speculative_tokens: Int32 | None = None
    use_beam_search: bool | None = None
    length_penalty: float | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None

    @field_validator("stop", mode="before")
    @classmethod
    def _one_stop_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _token_ids_are_numbers(cls, value: Any) -> Any:
        """JSON keys are strings; OpenAI's are decimal token ids."""
        if not isinstance(value, dict):
            return value
        for key in value:
            if not (key.isascii() and key.removesuffix(".0").isdigit() and len(key) <= 12):
                raise InvalidRequestError(
                    f"logit_bias has the key {key[:32]!r}; keys are token ids", param="logit_bias", code="invalid_value"
                )
        return {int(key.removesuffix(".0")): bias for key, bias in value.items()}


_READ_ELSEWHERE = ("structured_outputs", "best_of", "use_beam_search", "length_penalty", "truncate_prompt_tokens")


def sampling_values(fields: SamplingFields) -> dict[str, Any]:
    """Those fields of SamplingParams that the body gives, but for those that are read elsewhere; null gives nothing."""
    names = (name for name in SamplingParams.__struct_fields__ if name not in _READ_ELSEWHERE)
    values = {name: getattr(fields, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}


async def checked_form(fields: SamplingFields, service: Service) -> StructuredOutputsParams | None:
    """The form that the body asks for, if it asks for one. Raises InvalidRequestError for one that no answer can be held to."""
    form = asked_form(fields)
    return None if form is None else await form.check(service)


def request_options(fields: SamplingFields, tenant: str) -> RequestOptions:
    """The rest of what the request says."""
    return RequestOptions(
        priority=fields.priority or 0, cache_salt=fields.cache_salt or "", tenant=tenant, timeout_s=fields.timeout
    )


def check_common(fields: SamplingFields) -> None:
    """Raise for combinations no endpoint honours."""
    options = fields.stream_options
    if options is not None and (options.include_usage or options.continuous_usage_stats) and not fields.stream:
        raise InvalidRequestError("stream_options needs stream: true", param="stream_options")
    if fields.stream and fields.prompt_logprobs is not None:
        raise InvalidRequestError("prompt_logprobs is not available with stream: true", param="prompt_logprobs")
