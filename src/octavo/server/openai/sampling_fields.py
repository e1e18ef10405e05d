"""The request fields that chat and completions share, and how they become SamplingParams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, field_validator

from octavo.config.scheduler import PRIORITY_POLICIES
from octavo.errors import InvalidRequestError
from octavo.request import MAX_TENANT_LENGTH, MAX_TIMEOUT_S, RequestOptions
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.server.context import ServerContext
from octavo.server.openai.body import INT32_MAX, Body

Int32 = Annotated[int, Field(ge=-INT32_MAX - 1, le=INT32_MAX)]
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Field(ge=0, le=INT32_MAX)]

DEFAULTED_FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""As in vLLM: absent or null means the model's generation_config.json, and where that is silent, SamplingParams' default."""


class StreamOptions(Body):
    """include_usage adds a last chunk with the usage; continuous_usage_stats puts the usage so far into every chunk."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class SamplingFields(Body):
    """Fields common to both endpoints. Bounds that SamplingParams.validate knows are left to it.

    timeout  seconds after which the answer ends with what there is: finish_reason "length", stop_reason "timeout"
    user     whose request it is, where no list of API keys says so (see --scheduler-policy fair)
    """

    model: Annotated[str, Field(max_length=1024)] | None = None
    n: Int32 | None = None
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
    stop: list[str] | None = None
    stop_token_ids: list[Count] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    min_tokens: Count | None = None
    logit_bias: dict[int, float] | None = None
    skip_special_tokens: bool | None = None
    prompt_logprobs: Int32 | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    priority: Int32 | None = None
    timeout: Annotated[float, Field(gt=0, le=MAX_TIMEOUT_S)] | None = None
    user: Annotated[str, Field(max_length=MAX_TENANT_LENGTH)] | None = None

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
            if not (key.isascii() and key.isdigit() and len(key) <= 10):
                raise InvalidRequestError(
                    f"logit_bias has the key {key[:32]!r}; keys are token ids", param="logit_bias", code="invalid_value"
                )
        return {int(key): bias for key, bias in value.items()}


def sampling_params(
    fields: SamplingFields, context: ServerContext, *, max_tokens: int, logprobs: int | None, prompt_logprobs: int | None
) -> SamplingParams:
    """The validated SamplingParams of a request. Raises InvalidRequestError naming the field."""
    values: dict[str, Any] = {
        "max_tokens": max_tokens,
        "logprobs": logprobs,
        "prompt_logprobs": prompt_logprobs,
        "output_kind": RequestOutputKind.DELTA,
    }
    for name in SamplingParams.__struct_fields__:
        if name not in values and getattr(fields, name, None) is not None:
            values[name] = getattr(fields, name)
    for name, default in model_defaults(context.engine.generation_defaults).items():
        values.setdefault(name, default)
    params = SamplingParams(**values)
    params.validate(context.vocab_size)
    return params


def model_defaults(generation_config: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling defaults among the keys of generation_config.json."""
    return {name: generation_config[name] for name in DEFAULTED_FIELDS if generation_config.get(name) is not None}


def request_options(fields: SamplingFields, tenant: str) -> RequestOptions:
    """The rest of what the request says."""
    return RequestOptions(
        priority=fields.priority or 0, cache_salt=fields.cache_salt or "", tenant=tenant, timeout_s=fields.timeout
    )


def check_common(fields: SamplingFields, context: ServerContext) -> None:
    """Raise for combinations no endpoint honours."""
    if fields.stream_options is not None and not fields.stream:
        raise InvalidRequestError("stream_options needs stream: true", param="stream_options")
    policy = context.scheduler_policy
    if fields.priority and policy not in PRIORITY_POLICIES:
        raise InvalidRequestError(
            f"priority is {fields.priority}, but this server schedules {policy} and would ignore it; "
            "leave it out or start the server with --scheduler-policy priority",
            param="priority",
        )
    if fields.stream and fields.prompt_logprobs is not None:
        raise InvalidRequestError("prompt_logprobs is not available with stream: true", param="prompt_logprobs")
