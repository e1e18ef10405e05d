"""/api/chat: answer a conversation."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.dialogue.calls import ToolCall
from octavo.request import RequestOptions
from octavo.server.body import parse_body
from octavo.server.context import service_of, tenant_of
from octavo.server.described import FunctionTools, OptionalMessages
from octavo.server.errors import json_response
from octavo.server.json_body import read_json_object
from octavo.server.ollama.answers import Clock, encode, rfc3339
from octavo.server.ollama.fields import CLIENT_NAMES, OllamaBody, form_of, sampling_of
from octavo.server.ollama.job import Job
from octavo.server.ollama.messages import read_conversation
from octavo.server.ollama.names import check_model
from octavo.server.ollama.thinking import template_kwargs
from octavo.server.openai.messages import read_tools
from octavo.server.service.chat_turn import ChatRequest, begin_turn
from octavo.server.service.generation import new_request_id
from octavo.server.service.service import Service
from octavo.server.service.template_options import TemplateOptions
from octavo.server.service.turn_text import named_as


class OllamaChatBody(OllamaBody):
    """Without messages the answer says that the model is loaded. tools are OpenAI's; the model calls them when it likes."""

    messages: OptionalMessages = None
    tools: FunctionTools = None


async def chat(request: Request) -> Response:
    """POST /api/chat."""
    clock, service = Clock(), service_of(request)
    body = parse_body(OllamaChatBody, await read_json_object(request), {})
    check_model(service, body.model)
    name = body.model or service.model_name
    if not body.messages:
        return json_response(encode({**_head(name, "", "", []), "done": True, "done_reason": "load"}))
    service.require_text_model()
    asked = await _chat_request(body, service, tenant_of(request, None))
    with named_as(CLIENT_NAMES):
        turn = await begin_turn(service, asked, new_request_id("chat"))
    return Job(turn, service, clock, partial(_head, name), num_top=body.top_logprobs or 0).response(body.streams)


async def _chat_request(body: OllamaChatBody, service: Service, tenant: str) -> ChatRequest:
    """What the body asks for. What is wrong with it alone raises here, the rest in begin_turn."""
    sampling = sampling_of(body)
    return ChatRequest(
        messages=read_conversation(body.messages, template_knows_developer=service.template_knows_developer),
        tools=[] if body.tools is None else read_tools(body.tools),
        template=TemplateOptions(kwargs=template_kwargs(body.think, service)),
        form=await form_of(body, service),
        sampling=sampling,
        options=RequestOptions(tenant=tenant),
        splits_reasoning=body.think is not False,
    )


def _head(name: str, content: str, thinking: str, calls: list[ToolCall]) -> dict[str, Any]:
    return {"model": name, "created_at": rfc3339(), "message": _message(content, thinking, calls)}


def _message(content: str, thinking: str, calls: list[ToolCall]) -> dict[str, Any]:
    """Ollama's message: arguments are objects. A call that was cut before its end is left out, for there is no such object."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if thinking:
        message["thinking"] = thinking
    whole = [(call.name, arguments) for call in calls if (arguments := _object(call)) is not None]
    if whole:
        message["tool_calls"] = [{"function": {"name": name, "arguments": arguments}} for name, arguments in whole]
    return message


def _object(call: ToolCall) -> dict[str, Any] | None:
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None
