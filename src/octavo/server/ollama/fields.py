"""The request fields that /api/chat and /api/generate share, and how they become fields of SamplingParams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, field_validator, model_validator

from octavo.errors import InvalidRequestError
from octavo.server.body import Body, Int32, Int64, ModelName, NumLogprobs
from octavo.server.openai.structured_fields import AskedForm
from octavo.server.service.service import Service
from octavo.structured_outputs import StructuredOutputsParams

IGNORED_OPTIONS = frozenset(
    {
        *("num_ctx", "num_keep", "num_batch", "num_gpu", "num_thread", "main_gpu", "numa", "low_vram", "f16_kv", "use_mmap"),
        *("use_mlock", "vocab_only", "logits_all", "embedding_only"),
        *("repeat_last_n", "penalize_newline", "mirostat_tau", "mirostat_eta"),
    }
)
"""How a model is loaded was settled when the server started. Penalties look at all of prompt and output, whatever
repeat_last_n says, and mirostat is refused where it is on."""

NEUTRAL_OPTIONS: Mapping[str, float] = {"mirostat": 0, "tfs_z": 1, "typical_p": 1}
"""Samplers that are not here, with the value that switches each off."""

_NO_LIMITS = (-1, -2)
"""Values of num_predict: for ever, and until the context is full."""

_NAMES = {
    "num_predict": "max_tokens",
    "repeat_penalty": "repetition_penalty",
    **{name: name for name in ("temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "stop")},
}
"""Option -> field of SamplingParams."""

CLIENT_NAMES = {theirs: f"options.{ours}" for ours, theirs in _NAMES.items()} | {"structured_outputs": "format"}
"""Words in errors of a turn -> what Ollama's clients call them."""


class Options(Body):
    """Absent ones have the model's own defaults, as on the other routes. seed -1 draws one."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": True})  # those that are settled are taken

    num_predict: Int32 | None = None
    temperature: float | None = None
    top_k: Int32 | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: Int64 | None = None
    stop: list[str] | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_what_is_settled(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        for name, neutral in NEUTRAL_OPTIONS.items():
            if value.get(name) not in (None, neutral):
                where = f"options.{name}"
                raise InvalidRequestError(
                    f"{where} is not supported by this server; leave it out", param=where, code="unsupported_field"
                )
        return {name: item for name, item in value.items() if name not in IGNORED_OPTIONS and name not in NEUTRAL_OPTIONS}

    @field_validator("stop", mode="before")
    @classmethod
    def _one_stop_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class OllamaBody(Body):
    """Fields of both endpoints.

    stream      absent means true
    format      "json", or a JSON schema that the answer has to have
    think       true, false, or how much: "low", "medium", "high"
    keep_alive  taken and ignored: the model stays loaded; truncate and shift, too: no prompt is ever cut
    """

    model: ModelName | None = None
    stream: bool | None = None
    options: Options | None = None
    format: Any = None
    think: Any = None
    keep_alive: float | str | None = None
    logprobs: bool | None = None
    top_logprobs: NumLogprobs | None = None
    truncate: bool | None = None
    shift: bool | None = None

    @classmethod
    def _reads_empty(cls, name: str, value: Any) -> bool:
        return super()._reads_empty(name, value) or (name == "think" and value is False)

    @property
    def streams(self) -> bool:
        return self.stream is not False


def sampling_of(body: OllamaBody) -> dict[str, Any]:
    """Those fields of SamplingParams that the body gives, max_tokens and logprobs always. Raises InvalidRequestError."""
    options = body.options or Options()
    given = {theirs: getattr(options, ours) for ours, theirs in _NAMES.items()}
    limit = given.pop("max_tokens")
    if limit is not None and limit < 1 and limit not in _NO_LIMITS:
        raise InvalidRequestError(
            f"options.num_predict is {limit}; it must be at least 1, or -1 or -2 for no limit", param="options.num_predict"
        )
    if body.top_logprobs and not body.logprobs:
        raise InvalidRequestError("top_logprobs needs logprobs: true", param="top_logprobs")
    values = {name: value for name, value in given.items() if value is not None}
    if options.seed is not None and options.seed != -1:
        values["seed"] = options.seed
    values["max_tokens"] = None if limit in _NO_LIMITS else limit
    values["logprobs"] = (body.top_logprobs or 0) if body.logprobs else None
    return values


async def form_of(body: OllamaBody, service: Service) -> StructuredOutputsParams | None:
    """The form that `format` asks for, checked; None for none. Raises InvalidRequestError."""
    asked = body.format
    if asked is None:
        return None
    if asked == "json":
        form = AskedForm(StructuredOutputsParams(json_object=True), "structured_outputs.json_object", "format")
        return await form.check(service)
    if isinstance(asked, dict):
        return await AskedForm(StructuredOutputsParams(json=asked), "structured_outputs.json", "format").check(service)
    raise InvalidRequestError(f'format is {repr(asked)[:100]}; it must be "json" or a JSON schema', param="format")
