"""/v1/chat/completions: answer a conversation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.dialogue.calls import ToolCallDelta
from octavo.errors import InvalidRequestError
from octavo.server.body import UNSUPPORTED_FIELDS, Int32, NumLogprobs, parse_body
from octavo.server.context import context_of, service_of, tenant_of
from octavo.server.described import ToolChoiceField
from octavo.server.json_body import read_json_object
from octavo.server.openai.beam_fields import beam_params
from octavo.server.openai.chunks import ChunkWriter, answer_head, choice_json, encode, usage_json
from octavo.server.openai.logprobs import chat_logprobs, prompt_logprobs_json
from octavo.server.openai.prediction import Prediction, predicted_text
from octavo.server.openai.sampling_fields import (
    SamplingFields,
    check_common,
    checked_form,
    request_options,
    sampling_values,
    truncation,
)
from octavo.server.openai.template_fields import TemplateFields, messages_and_tools, template_options
from octavo.server.service.chat_turn import ChatRequest, ChatTurn, ChoiceDelta, ChoiceMessage, begin_turn
from octavo.server.service.generation import new_request_id
from octavo.server.service.service import Service
from octavo.server.service.template_options import TemplateOptions
from octavo.server.service.tool_plan import NamedTool, ToolChoice
from octavo.server.sse import DONE, EventStream, JsonAnswer
from octavo.step import TokenLogprobs

_UNSUPPORTED = {
    **UNSUPPORTED_FIELDS,
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
    "verbosity": ("medium",),
    "mm_processor_kwargs": (),
    "suffix": (),
}


class ChatBody(SamplingFields, TemplateFields):
    """The body. max_tokens is the old name of max_completion_tokens; without either the answer may fill the context.

    prediction  what the answer is likely to be like: its tokens are tried as guesses
    echo  the answer begins with the text of the last message, if that has the role of the answer
    """

    echo: bool | None = None
    max_tokens: Int32 | None = None
    max_completion_tokens: Int32 | None = None
    tool_choice: ToolChoiceField = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    include_reasoning: bool | None = None
    logprobs: bool | None = None
    top_logprobs: NumLogprobs | None = None
    prediction: Prediction | None = None


async def create_chat_completion(request: Request) -> Response:
    """POST /v1/chat/completions."""
    service, config = service_of(request), context_of(request).config
    body, turn = await read_chat(request)
    if body.return_tokens_as_token_ids is None:
        body.return_tokens_as_token_ids = config.return_tokens_as_token_ids
    job = _Job(body, service, turn)
    if body.stream:
        return EventStream(job.stream(force_usage=config.enable_force_include_usage))
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
    service.require_text_model()
    check_common(body)
    if body.top_logprobs and not body.logprobs:
        raise InvalidRequestError("top_logprobs needs logprobs: true", param="top_logprobs")
    if body.best_of not in (None, body.n or 1):
        raise InvalidRequestError(
            f"best_of is {body.best_of}; chats answer with all n choices, so leave it out, or use /v1/completions",
            param="best_of",
            code="unsupported_field",
        )
    max_tokens = _max_tokens(body)
    messages, tools = messages_and_tools(body, service)
    form = await checked_form(body, service)
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    return ChatRequest(
        messages=messages,
        tools=tools,
        tool_choice=_tool_choice(body),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        template=_template_options(body),
        form=form,
        sampling={**sampling_values(body), "max_tokens": max_tokens, "logprobs": logprobs},
        options=replace(request_options(body, tenant), prediction=predicted_text(body.prediction)),
        truncation=truncation(body, service, max_tokens),
        beams=beam_params(body, max_tokens, logprobs),
    )


def _template_options(body: ChatBody) -> TemplateOptions:
    """reasoning_effort is a variable of the template, unless chat_template_kwargs set it."""
    options = template_options(body)
    if not body.reasoning_effort:
        return options
    return replace(options, kwargs={"reasoning_effort": body.reasoning_effort, **(options.kwargs or {})})


def _tool_choice(body: ChatBody) -> ToolChoice:
    """Raises InvalidRequestError for what is no choice."""
    choice = body.tool_choice
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if choice.get("type") != "function" or not isinstance(name, str):
            raise InvalidRequestError(
                'tool_choice must be {"type": "function", "function": {"name": ...}} where it is an object', param="tool_choice"
            )
        return NamedTool(name)
    if choice not in (None, "none", "auto", "required"):
        raise InvalidRequestError(
            f"tool_choice is {str(choice)[:100]!r}; it must be none, auto, required or an object", param="tool_choice"
        )
    return choice or "auto"


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
        self._shows_reasoning = body.include_reasoning is not False
        generates = body.add_generation_prompt is not False and not body.continue_final_message
        last = turn.last_message
        self._role = service.response_role if generates else last["role"]
        self._echoed = _text(last) if body.echo and last["role"] == self._role else ""
        self._head = answer_head("chat.completion", turn.generation.request_id, service)

    async def answer(self) -> bytes:
        """The whole answer as JSON."""
        choices = [self._whole(choice) for choice in await self._turn.collect()]
        json = {**self._head, "choices": choices, "usage": usage_json(self._turn.usage)}
        if self._turn.prompt_logprobs is not None:
            json["prompt_logprobs"] = prompt_logprobs_json(self._turn.prompt_logprobs, self._tokenizer)
        if self._body.return_token_ids:
            json["prompt_token_ids"] = self._prompt_token_ids
        return encode(json)

    def _whole(self, choice: ChoiceMessage) -> dict[str, Any]:
        json = {
            "index": choice.index,
            "message": self._message(choice),
            "logprobs": self._logprobs(choice.logprobs),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
        }
        if self._body.return_token_ids:
            json["token_ids"] = choice.token_ids
        return json

    @property
    def _prompt_token_ids(self) -> list[int]:
        return self._turn.generation.prompts[0].token_ids

    async def stream(self, *, force_usage: bool) -> AsyncGenerator[bytes, None]:
        """SSE events: per choice the role first, then its text, its finish reason last."""
        head = {**self._head, "object": "chat.completion.chunk"}
        writer = ChunkWriter(head, self._body.stream_options, force_usage=force_usage)
        usage, started = self._turn.usage, False
        async with aclosing(self._turn.run()) as outputs:
            async for deltas in outputs:
                if not started:
                    started = True
                    nothing_yet = replace(usage, completion_tokens=0)
                    for index in range(self._turn.generation.n):
                        yield writer.chunk(self._role_choice(index), nothing_yet, self._prompt_ids_key if index == 0 else b"")
                        if self._echoed:
                            yield writer.chunk(self._echo_choice(index), nothing_yet)
                for delta in deltas:
                    if not self._shows_reasoning:
                        delta.reasoning = ""
                    # It is empty while there is an unfinished character, or a possible stop string.
                    if not delta.is_empty or self._body.return_token_ids:
                        yield writer.chunk(self._choice(delta), usage)
        if writer.include_usage:
            yield writer.usage_chunk(usage)
        yield DONE

    @property
    def _prompt_ids_key(self) -> bytes:
        """A further key of the first chunk, where it is asked for."""
        return b',"prompt_token_ids":' + encode(self._prompt_token_ids) if self._body.return_token_ids else b""

    def _role_choice(self, index: int) -> bytes:
        content = b'{"role":' + encode(self._role) + b',"content":""}'
        return choice_json(index, b'"delta":', content, b"null", b"null", b"null")

    def _echo_choice(self, index: int) -> bytes:
        content = b'{"content":' + encode(self._echoed) + b"}"
        return choice_json(index, b'"delta":', content, b"null", b"null", b"null")

    def _message(self, choice: ChoiceMessage) -> dict[str, Any]:
        """The message, with tool_calls and reasoning where there are any."""
        content = self._echoed + (choice.content or "") if self._echoed else choice.content
        message: dict[str, Any] = {"role": self._role, "content": content, "refusal": None}
        if choice.tool_calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in choice.tool_calls
            ]
        if choice.reasoning and self._shows_reasoning:
            message.update({name: choice.reasoning for name in _REASONING_NAMES})
        return message

    def _choice(self, delta: ChoiceDelta) -> bytes:
        if delta.tool_calls or delta.reasoning:
            parts: dict[str, Any] = {name: delta.reasoning for name in _REASONING_NAMES} if delta.reasoning else {}
            if delta.content:
                parts["content"] = delta.content
            if delta.tool_calls:
                parts["tool_calls"] = [_call_json(call) for call in delta.tool_calls]
            content = encode(parts)
        else:
            content = b'{"content":' + encode(delta.content) + b"}" if delta.content or delta.logprobs else b"{}"
        logprobs = encode(self._logprobs(delta.logprobs)) if self._body.logprobs else b"null"
        more = b',"token_ids":' + encode(delta.token_ids) if self._body.return_token_ids else b""
        finish, stop = encode(delta.finish_reason), encode(delta.stop_reason)
        return choice_json(delta.index, b'"delta":', content, logprobs, finish, stop, more)

    def _logprobs(self, entries: Sequence[TokenLogprobs] | None) -> dict[str, Any] | None:
        """The object for these entries; None where none were asked for."""
        if not self._body.logprobs:
            return None
        as_ids = bool(self._body.return_tokens_as_token_ids)
        return chat_logprobs(entries or (), self._tokenizer, self._body.top_logprobs or 0, as_ids)


def _text(message: Mapping[str, Any]) -> str:
    """The text of a message; its parts with a line break between them, as templates get them."""
    content = message["content"]
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def _call_json(call: ToolCallDelta) -> dict[str, Any]:
    if call.name is None:
        return {"index": call.index, "function": {"arguments": call.arguments}}
    function = {"name": call.name, "arguments": call.arguments}
    return {"index": call.index, "id": call.id, "type": "function", "function": function}


_REASONING_NAMES = ("reasoning_content", "reasoning")
"""What vLLM called it first, and calls it now."""
