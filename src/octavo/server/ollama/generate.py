"""/api/generate: answer one prompt, rendered with the model's chat template, or continue it as it is with raw."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.dialogue.calls import ToolCall
from octavo.errors import InvalidRequestError
from octavo.request import RequestOptions
from octavo.server.body import parse_body
from octavo.server.context import service_of, tenant_of
from octavo.server.errors import json_response
from octavo.server.json_body import read_json_object
from octavo.server.ollama.answers import Clock, encode, rfc3339
from octavo.server.ollama.fields import CLIENT_NAMES, OllamaBody, form_of, sampling_of
from octavo.server.ollama.job import Job
from octavo.server.ollama.messages import refuse_images
from octavo.server.ollama.names import check_model
from octavo.server.ollama.thinking import template_kwargs
from octavo.server.openai.prompts import read_prompts
from octavo.server.service.chat_turn import ChatRequest, ChatTurn, TemplateOptions, begin_turn
from octavo.server.service.generation import Generation, new_request_id
from octavo.server.service.service import Service
from octavo.server.service.turn_text import named_as

_UNSUPPORTED: dict[str, tuple[Any, ...]] = {"suffix": (), "template": (), "context": (), "width": (), "height": (), "steps": ()}


class GenerateBody(OllamaBody):
    """Without a prompt the answer says that the model is loaded."""

    prompt: str | None = None
    system: str | None = None
    raw: bool | None = None
    images: Any = None


async def generate(request: Request) -> Response:
    """POST /api/generate."""
    clock, service = Clock(), service_of(request)
    body = parse_body(GenerateBody, await read_json_object(request), _UNSUPPORTED)
    check_model(service, body.model)
    refuse_images(body.images, "images")
    name = body.model or service.model_name
    if not body.prompt:
        return json_response(encode({**_head(name, "", "", []), "done": True, "done_reason": "load"}))
    service.require_text_model()
    with named_as(CLIENT_NAMES):
        turn = await _turn(body, body.prompt, service, RequestOptions(tenant=tenant_of(request, None)))
    return Job(turn, service, clock, partial(_head, name), num_top=body.top_logprobs or 0).response(body.streams)


async def _turn(body: GenerateBody, prompt: str, service: Service, options: RequestOptions) -> ChatTurn:
    """Everything that can be wrong with the body raises here, before any part of it runs."""
    sampling, form = sampling_of(body), await form_of(body, service)
    if not body.raw:
        system = [] if body.system is None else [{"role": "system", "content": body.system}]
        asked = ChatRequest(
            messages=[*system, {"role": "user", "content": prompt}],
            template=TemplateOptions(kwargs=template_kwargs(body.think, service)),
            form=form,
            sampling=sampling,
            options=options,
            splits_reasoning=body.think is not False,
        )
        return await begin_turn(service, asked, new_request_id("gen"))
    for field in ("system", "think"):
        if getattr(body, field):
            raise InvalidRequestError(f"{field} is for the chat template, which raw leaves out; send one of them", param=field)
    prompts = await read_prompts(prompt, service, add_special_tokens=True)
    service.require_room(len(prompts[0].token_ids), "prompt")
    params = service.sampling_params({**sampling, **({} if form is None else {"structured_outputs": form})})
    generation = Generation(request_id=new_request_id("gen"), prompts=prompts, params=params, options=options)
    return ChatTurn(service, generation, lambda: None)


def _head(name: str, text: str, thinking: str, _calls: list[ToolCall]) -> dict[str, Any]:
    head = {"model": name, "created_at": rfc3339(), "response": text}
    return {**head, "thinking": thinking} if thinking else head
