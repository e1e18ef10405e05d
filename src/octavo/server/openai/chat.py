"""/v1/chat/completions: answer a conversation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.sampling_params import MAX_LOGPROBS
from octavo.server.body import UNSUPPORTED_FIELDS, Int32, parse_body
from octavo.server.context import service_of, tenant_of
from octavo.server.json_body import read_json_object
from octavo.server.openai.chunks import ChunkWriter, answer_head, choice_json, encode, usage_json
from octavo.server.openai.logprobs import chat_logprobs, prompt_logprobs_json
from octavo.server.openai.sampling_fields import SamplingFields, check_common, form_values, request_options, sampling_values
from octavo.server.openai.template_fields import TemplateFields, conversation, template_options
from octavo.server.service.chat_turn import ChatRequest, ChatTurn, ChoiceDelta, NamedTool, ToolChoice, begin_turn
from octavo.server.service.generation import new_request_id
from octavo.server.service.service import Service
from octavo.server.sse import DONE, EventStream, JsonAnswer
from octavo.step import TokenLogprobs

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
    body, turn = await read_chat(request)
    job = _Job(body, service, turn)
    if body.stream:
        return EventStream(job.stream())
    return JsonAnswer(job.answer)


async def read_chat(request: Request) -> tuple[ChatBody, ChatTurn]:
    """The body of a request and the turn that it asks for, which has not begun. What is wrong with either raises here."""
    service = service_of(request)
    body = parse_body(ChatBody, await read_json_object(request), _UNSUPPORTED)
    asked = await _chat_request(body, service, tenant_of(request, body.user))
    return body, await begin_turn(service, asked, new_request_id("chatcmpl"))


async def _chat_request(body: ChatBody, service: Service, tenant: str) -> ChatRequest:
    """What the body asks for. What is wrong with it alone raises here, the rest in begin_turn."""
    service.check_model(body.model)
    check_common(body)
    if body.top_logprobs and not body.logprobs:
        raise InvalidRequestError("top_logprobs needs logprobs: true", param="top_logprobs")
    max_tokens = _max_tokens(body)
    messages, tools = conversation(body, service)
    form = await form_values(body, service)
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    return ChatRequest(
        messages=messages,
        tools=tools,
        tool_choice=_tool_choice(body),
        template=template_options(body),
        form=form.get("structured_outputs"),
        sampling={**sampling_values(body), "max_tokens": max_tokens, "logprobs": logprobs},
        options=request_options(body, tenant),
    )


def _tool_choice(body: ChatBody) -> ToolChoice:
    """Raises InvalidRequestError for what is no choice, and for one without tools."""
    choice = body.tool_choice
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if choice.get("type") != "function" or not isinstance(name, str):
            raise InvalidRequestError(
                'tool_choice must be {"type": "function", "function": {"name": ...}} where it is an object', param="tool_choice"
            )
        chosen: ToolChoice = NamedTool(name)
    elif choice in (None, "none", "auto", "required"):
        chosen = choice or "auto"
    else:
        raise InvalidRequestError(
            f"tool_choice is {str(choice)[:100]!r}; it must be none, auto, required or an object", param="tool_choice"
        )
    if not body.tools and chosen not in ("none", "auto"):
        raise InvalidRequestError("tool_choice needs tools", param="tool_choice")
    return chosen


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

    def __init__(self, body: ChatBody, service: Service, turn: ChatTurn) -> None:
        self._body = body
        self._tokenizer = service.engine.tokenizer
        self._turn = turn
        self._head = answer_head("chat.completion", turn.generation, service)

    async def answer(self) -> bytes:
        """The whole answer as JSON."""
        choices = [
            {
                "index": choice.index,
                "message": {"role": "assistant", "content": choice.content, "refusal": None},
                "logprobs": self._logprobs(choice.logprobs),
                "finish_reason": choice.finish_reason,
                "stop_reason": choice.stop_reason,
            }
            for choice in await self._turn.collect()
        ]
        json = {**self._head, "choices": choices, "usage": usage_json(self._turn.usage)}
        if self._turn.prompt_logprobs is not None:
            json["prompt_logprobs"] = prompt_logprobs_json(self._turn.prompt_logprobs, self._tokenizer)
        return encode(json)

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """SSE events: per choice the role first, then its text, its finish reason last."""
        writer = ChunkWriter({**self._head, "object": "chat.completion.chunk"}, self._body.stream_options)
        usage, started = self._turn.usage, False
        async with aclosing(self._turn.run()) as outputs:
            async for deltas in outputs:
                if not started:
                    started = True
                    nothing_yet = replace(usage, completion_tokens=0)
                    for index in range(self._turn.generation.n):
                        yield writer.chunk(_ROLE_CHOICE % index, nothing_yet)
                for delta in deltas:
                    if not delta.is_empty:  # it is while there is an unfinished character, or a possible stop string
                        yield writer.chunk(self._choice(delta), usage)
        if writer.include_usage:
            yield writer.usage_chunk(usage)
        yield DONE

    def _choice(self, delta: ChoiceDelta) -> bytes:
        content = b'{"content":' + encode(delta.content) + b"}" if delta.content or delta.logprobs else b"{}"
        logprobs = encode(self._logprobs(delta.logprobs)) if self._body.logprobs else b"null"
        return choice_json(delta.index, b'"delta":', content, logprobs, encode(delta.finish_reason), encode(delta.stop_reason))

    def _logprobs(self, entries: Sequence[TokenLogprobs] | None) -> dict[str, Any] | None:
        """The object for these entries; None where none were asked for."""
        return chat_logprobs(entries or (), self._tokenizer, self._body.top_logprobs or 0) if self._body.logprobs else None


_ROLE_CHOICE = b'{"index":%d,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null,"stop_reason":null}'
