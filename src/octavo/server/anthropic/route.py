"""/v1/messages: answer a conversation with content blocks, whole or as a stream of events; and count its tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo.server.anthropic.blocks import ContentBlocks, Event
from octavo.server.anthropic.body import THINKING, CountTokensBody, MessagesBody, read_body
from octavo.server.anthropic.conversation import continues_last, read_conversation
from octavo.server.anthropic.tools import read_tool_choice, read_tools
from octavo.server.context import service_of, tenant_of
from octavo.server.error_shapes import anthropic_shape
from octavo.server.errors import fault_of, json_response
from octavo.server.json_body import read_json_object
from octavo.server.openai.sampling_fields import form_values, request_options, sampling_values
from octavo.server.openai.structured_fields import AskedForm
from octavo.server.service.chat_turn import MAX_COUNTED, ChatRequest, ChatTurn, TemplateOptions, begin_turn, count_prompt
from octavo.server.service.conversation import shown, wrong
from octavo.server.service.generation import new_request_id
from octavo.server.service.service import Service
from octavo.server.service.turn_text import count_reasoning, deltas_of, named_as
from octavo.server.sse import EventStream, JsonAnswer, named_event
from octavo.structured_outputs import StructuredOutputsParams

_NAMES = {"stop": "stop_sequences", ".function.parameters": ".input_schema", ".function.": "."}
"""The words of a chat in errors -> those of this route."""


async def create_message(request: Request) -> Response:
    """POST /v1/messages."""
    service = service_of(request)
    body = read_body(MessagesBody, await read_json_object(request))
    with named_as(_NAMES):
        asked = await _chat_request(body, service, tenant_of(request, body.tenant))
        turn = await begin_turn(service, asked, new_request_id("msg", "_"))
    job = _Job(body, asked, turn, service)
    return EventStream(job.stream(), on_error=_error_event) if body.stream else JsonAnswer(job.answer)


async def count_tokens(request: Request) -> Response:
    """POST /v1/messages/count_tokens: {"input_tokens"}, how long the prompt of these messages is."""
    service = service_of(request)
    body = read_body(CountTokensBody, await read_json_object(request))
    service.check_model(body.model)
    messages = read_conversation(body.messages, body.system)
    tool_choice, _ = read_tool_choice(body.tool_choice)
    asked = ChatRequest(
        messages=messages,
        tools=read_tools(body.tools),
        tool_choice=tool_choice,
        template=_template(body, messages),
        sampling={},
    )
    with named_as(_NAMES):
        count = await count_prompt(service, asked, max(service.max_model_len, MAX_COUNTED))
    return json_response(msgspec.json.encode({"input_tokens": count}))


async def _chat_request(body: MessagesBody, service: Service, tenant: str) -> ChatRequest:
    """What the body asks for. What is wrong with it alone raises here, the rest in begin_turn."""
    service.check_model(body.model)
    messages = read_conversation(body.messages, body.system)
    tool_choice, is_parallel = read_tool_choice(body.tool_choice)
    return ChatRequest(
        messages=messages,
        tools=read_tools(body.tools),
        tool_choice=tool_choice,
        parallel_tool_calls=is_parallel,
        template=_template(body, messages),
        form=await _form(body, service),
        sampling={**sampling_values(body), "stop": body.stop_sequences or []},
        options=request_options(body, tenant),
    )


def _template(body: CountTokensBody, messages: list[dict[str, Any]]) -> TemplateOptions:
    continues = continues_last(messages)
    kwargs = dict(body.chat_template_kwargs or {})
    if body.thinking is not None:
        kwargs.setdefault("enable_thinking", THINKING[body.thinking.type])
    if body.output_config is not None and body.output_config.effort is not None:
        kwargs.setdefault("reasoning_effort", body.output_config.effort)
    return TemplateOptions(add_generation_prompt=not continues, continue_final_message=continues, kwargs=kwargs)


async def _form(body: MessagesBody, service: Service) -> StructuredOutputsParams | None:
    """The form of output_config.format or of structured_outputs, checked. Raises InvalidRequestError."""
    form: StructuredOutputsParams | None = (await form_values(body, service)).get("structured_outputs")
    asked = None if body.output_config is None else body.output_config.format
    if asked is None:
        return form
    if form is not None:
        raise wrong(
            "structured_outputs", "and output_config.format are given; an answer can have one form, so give one of them"
        )
    if asked.get("type") != "json_schema":
        raise wrong("output_config.format.type", f"is {shown(asked.get('type'))}; it must be json_schema")
    if not isinstance(asked.get("schema"), dict):
        raise wrong("output_config.format.schema", "must be a JSON schema: an object", "invalid_type")
    params = StructuredOutputsParams(json=asked["schema"] or True)
    return await AskedForm(params, "structured_outputs.json", "output_config.format.schema").check(service)


class _Job:
    """One message on its way, streamed or whole: both are made by the same ContentBlocks."""

    def __init__(self, body: MessagesBody, asked: ChatRequest, turn: ChatTurn, service: Service) -> None:
        self._turn = turn
        self._stops = frozenset(body.stop_sequences or ())
        self._tokenizer = service.engine.tokenizer
        self._has_tools = bool(asked.tools) and asked.tool_choice != "none"
        self._head = {"id": turn.generation.request_id, "type": "message", "role": "assistant", "model": service.model_name}
        self._content = ContentBlocks()
        self._ending: dict[str, Any] = {"stop_reason": None, "stop_sequence": None}

    async def answer(self) -> bytes:
        """The whole message as JSON."""
        async with aclosing(deltas_of(self._turn, keeps_order=self._has_tools)) as deltas:
            async for delta in deltas:
                self._content.add(delta)
                self._note_end(delta.finish_reason, delta.stop_reason)
        self._content.stop()
        usage = await self._usage()
        return msgspec.json.encode({**self._head, "content": self._content.blocks, **self._ending, "usage": usage})

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """SSE events."""
        started = False
        async with aclosing(self._turn.run()) as outputs:
            async for deltas in outputs:
                if not started:
                    started = True
                    usage = {**self._input_usage(), "output_tokens": 0}
                    message = {**self._head, "content": [], **self._ending, "usage": usage}
                    yield _write({"type": "message_start", "message": message})
                    yield _write({"type": "ping"})
                for delta in deltas:
                    self._note_end(delta.finish_reason, delta.stop_reason)
                    for event in self._content.add(delta):
                        yield _write(event)
        for event in self._content.stop():
            yield _write(event)
        yield _write({"type": "message_delta", "delta": self._ending, "usage": await self._usage()})
        yield _write({"type": "message_stop"})

    def _note_end(self, finish_reason: str | None, stop_reason: int | str | None) -> None:
        if finish_reason == "length":
            self._ending["stop_reason"] = "max_tokens"
        elif finish_reason == "tool_calls":
            self._ending["stop_reason"] = "tool_use"
        elif finish_reason is not None and stop_reason in self._stops:
            self._ending = {"stop_reason": "stop_sequence", "stop_sequence": stop_reason}
        elif finish_reason is not None:
            self._ending["stop_reason"] = "end_turn"

    def _input_usage(self) -> dict[str, int]:
        """The three add up to the tokens of the prompt."""
        usage = self._turn.usage
        return {
            "input_tokens": usage.prompt_tokens - usage.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached_tokens,
        }

    async def _usage(self) -> dict[str, Any]:
        thinking = "".join(block["thinking"] for block in self._content.blocks if block["type"] == "thinking")
        thinking_tokens = await count_reasoning(self._tokenizer, self._turn.usage, thinking)
        details = {"output_tokens_details": {"thinking_tokens": thinking_tokens}} if thinking else {}
        return {**self._input_usage(), "output_tokens": self._turn.usage.completion_tokens, **details}


def _write(event: Event) -> bytes:
    return named_event(event["type"].encode(), msgspec.json.encode(event))


def _error_event(error: BaseException) -> bytes:
    return named_event(b"error", anthropic_shape(fault_of(error)))
