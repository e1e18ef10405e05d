"""/v1/responses: answer an input with items, whole or as a stream of events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo.server.context import service_of, tenant_of
from octavo.server.errors import fault_of, json_response
from octavo.server.json_body import read_json_object
from octavo.server.openai.sampling_fields import form_values, request_options, sampling_values
from octavo.server.responses.answer import ResponseObject
from octavo.server.responses.body import ResponsesBody, read_body
from octavo.server.responses.input_items import read_input
from octavo.server.responses.items import Event, OutputItems
from octavo.server.responses.text_format import asked_format
from octavo.server.responses.tools import read_tool_choice, read_tools
from octavo.server.service.chat_turn import MAX_COUNTED, ChatRequest, ChatTurn, TemplateOptions, begin_turn, count_prompt
from octavo.server.service.conversation import wrong
from octavo.server.service.generation import new_request_id
from octavo.server.service.service import Service
from octavo.server.service.turn_text import count_reasoning, deltas_of, named_as
from octavo.server.sse import EventStream, JsonAnswer, named_event
from octavo.structured_outputs import StructuredOutputsParams

_NAMES = {"messages": "input", "max_tokens": "max_output_tokens", "logprobs": "top_logprobs", ".function.": "."}
"""The words of a chat in errors -> those of this route."""


async def create_response(request: Request) -> Response:
    """POST /v1/responses."""
    service = service_of(request)
    body = read_body(await read_json_object(request))
    with named_as(_NAMES):
        asked = await _chat_request(body, service, tenant_of(request, body.user))
        turn = await begin_turn(service, asked, new_request_id("resp", "_"))
    job = _Job(body, asked, turn, service)
    return EventStream(job.stream(), on_error=job.error_event) if body.stream else JsonAnswer(job.answer)


async def count_input_tokens(request: Request) -> Response:
    """POST /v1/responses/input_tokens: how long the prompt of this input is."""
    service = service_of(request)
    body = read_body(await read_json_object(request))
    with named_as(_NAMES):
        asked = await _chat_request(body, service, tenant_of(request, body.user))
        count = await count_prompt(service, asked, max(service.max_model_len, MAX_COUNTED))
    return json_response(msgspec.json.encode({"object": "response.input_tokens", "input_tokens": count}))


async def _chat_request(body: ResponsesBody, service: Service, tenant: str) -> ChatRequest:
    """What the body asks for. What is wrong with it alone raises here, the rest in begin_turn."""
    service.check_model(body.model)
    messages = read_input(body.input, body.instructions, template_knows_developer=service.template_knows_developer)
    tools = read_tools(body.tools)
    tool_choice = read_tool_choice(body.tool_choice)
    if body.includes_logprobs and tools and tool_choice != "none":
        raise wrong(
            "include",
            "asks for the logprobs of a text, which cannot be told from those of calls: leave out the tools, "
            "or set tool_choice to none",
            "unsupported_field",
        )
    kwargs = dict(body.chat_template_kwargs or {})
    if body.reasoning is not None and body.reasoning.effort is not None:
        kwargs.setdefault("reasoning_effort", body.reasoning.effort)
    return ChatRequest(
        messages=messages,
        tools=tools,
        tool_choice=tool_choice,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        template=TemplateOptions(kwargs=kwargs),
        form=await _form(body, service),
        sampling={
            **sampling_values(body),
            "max_tokens": body.max_output_tokens,
            "logprobs": (body.top_logprobs or 0) if body.includes_logprobs else None,
        },
        options=request_options(body, tenant),
    )


async def _form(body: ResponsesBody, service: Service) -> StructuredOutputsParams | None:
    """The form of text.format or of structured_outputs, checked. Raises InvalidRequestError."""
    form: StructuredOutputsParams | None = (await form_values(body, service)).get("structured_outputs")
    asked = asked_format(None if body.text is None else body.text.format)
    if asked is None:
        return form
    if form is not None:
        raise wrong("structured_outputs", "and text.format are given; an answer can have one form, so give one of them")
    return await asked.check(service)


class _Job:
    """One response on its way, streamed or whole: both are made by the same OutputItems."""

    def __init__(self, body: ResponsesBody, asked: ChatRequest, turn: ChatTurn, service: Service) -> None:
        self._turn = turn
        self._tokenizer = service.engine.tokenizer
        self._has_tools = bool(asked.tools) and asked.tool_choice != "none"
        self._object = ResponseObject(body, asked, turn, service)
        num_logprobs = (body.top_logprobs or 0) if body.includes_logprobs else None
        self._items = OutputItems(self._object.id, self._tokenizer, num_logprobs)
        self._num_events = 0

    async def answer(self) -> bytes:
        """The whole response as JSON."""
        finish_reason = None
        async with aclosing(deltas_of(self._turn, keeps_order=self._has_tools)) as deltas:
            async for delta in deltas:
                self._items.add(delta)
                finish_reason = delta.finish_reason or finish_reason
        self._items.finish(_status(finish_reason))
        return msgspec.json.encode(await self._ended(finish_reason))

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """SSE events, the whole response in the last."""
        finish_reason, started = None, False
        async with aclosing(self._turn.run()) as outputs:
            async for deltas in outputs:
                if not started:
                    started = True
                    yield self._write({"type": "response.created", "response": self._object.under_way()})
                    yield self._write({"type": "response.in_progress", "response": self._object.under_way()})
                for delta in deltas:
                    finish_reason = delta.finish_reason or finish_reason
                    for event in self._items.add(delta):
                        yield self._write(event)
        status = _status(finish_reason)
        for event in self._items.finish(status):
            yield self._write(event)
        yield self._write({"type": f"response.{status}", "response": await self._ended(finish_reason)})

    def error_event(self, error: BaseException) -> bytes:
        """The last event of a stream in which error was raised."""
        response = self._object.failed(self._items.items, fault_of(error).message)
        return self._write({"type": "response.failed", "response": response})

    async def _ended(self, finish_reason: str | None) -> dict[str, Any]:
        reasoning = "".join(
            part["text"] for item in self._items.items if item["type"] == "reasoning" for part in item["content"]
        )
        reasoning_tokens = await count_reasoning(self._tokenizer, self._turn.usage, reasoning)
        return self._object.ended(self._items.items, finish_reason, reasoning_tokens)

    def _write(self, event: Event) -> bytes:
        event["sequence_number"] = self._num_events
        self._num_events += 1
        return named_event(event["type"].encode(), msgspec.json.encode(event))


def _status(finish_reason: str | None) -> str:
    """What has become of the response; its last item has become the same."""
    return "incomplete" if finish_reason == "length" else "completed"
