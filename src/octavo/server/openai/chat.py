"""/v1/chat/completions: answer a conversation."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from octavo.engine.frontend.outputs import CompletionOutput
from octavo.errors import InvalidRequestError
from octavo.sampling_params import MAX_LOGPROBS
from octavo.server.body import UNSUPPORTED_FIELDS, Int32, parse_body
from octavo.server.context import service_of, tenant_of
from octavo.server.json_body import read_json_object
from octavo.server.openai.chunks import ChunkWriter, answer_head, choice_json, encode, usage_json
from octavo.server.openai.logprobs import chat_logprobs, prompt_logprobs_json
from octavo.server.openai.sampling_fields import SamplingFields, check_common, form_values, request_options, sampling_values
from octavo.server.openai.template_fields import TemplateFields, render
from octavo.server.service.generation import EncodedPrompt, Generation, new_request_id
from octavo.server.service.service import Service
from octavo.server.sse import DONE, EventStream, JsonAnswer

_UNSUPPORTED = {
    **UNSUPPORTED_FIELDS,
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "reasoning_effort": (),
    "verbosity": ("medium",),
    "include_reasoning": (True,),
    "documents": (),
    "chat_template": (),
    "echo": (),
    "mm_processor_kwargs": (),
    "add_special_tokens": (),
}


class ChatBody(SamplingFields, TemplateFields):
    """The body. max_tokens is the old name of max_completion_tokens; without either the answer may fill the context."""

    max_tokens: Int32 | None = None
    max_completion_tokens: Int32 | None = None
    tool_choice: Any = None
    logprobs: bool | None = None
    top_logprobs: Annotated[Int32, Field(ge=0, le=MAX_LOGPROBS)] | None = None


async def create_chat_completion(request: Request) -> Response:
    """POST /v1/chat/completions."""
    service = service_of(request)
    body = parse_body(ChatBody, await read_json_object(request), _UNSUPPORTED)
    job = _Job(body, service, await _generation(body, service, tenant_of(request, body.user)))
    if body.stream:
        return EventStream(job.stream())
    return JsonAnswer(job.answer)


async def _generation(body: ChatBody, service: Service, tenant: str) -> Generation:
    """Everything that can be wrong with the body raises here, before any part of it runs."""
    service.check_model(body.model)
    check_common(body)
    _check_tool_choice(body)
    if body.top_logprobs and not body.logprobs:
        raise InvalidRequestError("top_logprobs needs logprobs: true", param="top_logprobs")
    max_tokens = _max_tokens(body)
    form = await form_values(body, service)
    token_ids = await render(body, service, service.max_model_len)
    service.require_room(len(token_ids), "messages")
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    return Generation(
        request_id=new_request_id("chatcmpl"),
        prompts=[EncodedPrompt(None, token_ids)],
        params=service.sampling_params({**sampling_values(body), **form, "max_tokens": max_tokens, "logprobs": logprobs}),
        options=request_options(body, tenant),
    )


def _check_tool_choice(body: ChatBody) -> None:
    if body.tool_choice not in (None, "none", "auto", "required") and not isinstance(body.tool_choice, dict):
        raise InvalidRequestError(
            f"tool_choice is {str(body.tool_choice)[:100]!r}; it must be none, auto, required or an object", param="tool_choice"
        )
    if body.tools and body.tool_choice != "none":
        raise InvalidRequestError(
            "this server cannot parse tool calls yet; with tools, set tool_choice to none: the model sees the tools, "
            "and its answer comes back as text",
            param="tool_choice",
            code="unsupported_field",
        )
    if not body.tools and body.tool_choice not in (None, "none", "auto"):
        raise InvalidRequestError("tool_choice needs tools", param="tool_choice")


def _max_tokens(body: ChatBody) -> int | None:
    """The limit; None: all that the context leaves."""
    new, old = body.max_completion_tokens, body.max_tokens
    if new is not None and old is not None and new != old:
        raise InvalidRequestError(
            f"max_completion_tokens is {new} and max_tokens is {old}; they mean the same, send one", param="max_tokens"
        )
    value, param = (new, "max_completion_tokens") if new is not None else (old, "max_tokens")
    if value is not None and value < 1:
        raise InvalidRequestError(f"{param} is {value}; it must be at least 1", param=param)
    return value


class _Job:
    """One chat request on its way to an answer, streamed or whole."""

    def __init__(self, body: ChatBody, service: Service, generation: Generation) -> None:
        self._body = body
        self._engine = service.engine
        self._tokenizer = service.engine.tokenizer
        self._generation = generation
        self._head = answer_head("chat.completion", generation.request_id, service)

    async def answer(self) -> bytes:
        """The whole answer as JSON."""
        [result] = await self._generation.collect(self._engine)
        choices = [
            {
                "index": choice.index,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "logprobs": self._logprobs(choice) if self._body.logprobs else None,
                "finish_reason": choice.finish_reason,
                "stop_reason": choice.stop_reason,
            }
            for choice in result.outputs
        ]
        json = {**self._head, "choices": choices, "usage": usage_json(self._generation.usage)}
        if result.prompt_logprobs is not None:
            json["prompt_logprobs"] = prompt_logprobs_json(result.prompt_logprobs, self._tokenizer)
        return encode(json)

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """SSE events: per choice the role first, then its text, its finish reason last."""
        writer = ChunkWriter({**self._head, "object": "chat.completion.chunk"}, self._body.stream_options)
        usage, started = self._generation.usage, False
        async with aclosing(self._generation.run(self._engine)) as outputs:
            async for _, output in outputs:
                if not started:
                    started = True
                    nothing_yet = replace(usage, completion_tokens=0)
                    for index in range(self._generation.n):
                        yield writer.chunk(_ROLE_CHOICE % index, nothing_yet)
                for delta in output.outputs:
                    json = self._choice(delta)
                    if json is not None:
                        yield writer.chunk(json, usage)
        if writer.include_usage:
            yield writer.usage_chunk(usage)
        yield DONE

    def _choice(self, delta: CompletionOutput) -> bytes | None:
        """The delta as JSON, or None while there is nothing to show (an unfinished character, a possible stop string)."""
        if not delta.text and delta.finish_reason is None and not delta.logprobs:
            return None
        content = b'{"content":' + encode(delta.text) + b"}" if delta.text or delta.logprobs else b"{}"
        logprobs = encode(self._logprobs(delta)) if self._body.logprobs else b"null"
        return choice_json(delta.index, b'"delta":', content, logprobs, encode(delta.finish_reason), encode(delta.stop_reason))

    def _logprobs(self, choice: CompletionOutput) -> dict[str, Any]:
        return chat_logprobs(choice.logprobs or (), self._tokenizer, self._body.top_logprobs or 0)


_ROLE_CHOICE = b'{"index":%d,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null,"stop_reason":null}'
