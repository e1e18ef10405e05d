"""/v1/chat/completions/render and /v1/completions/render: what a request would become, and nothing is generated."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo.server.context import service_of
from octavo.server.errors import json_response
from octavo.server.openai.chat import read_chat
from octavo.server.openai.completions import read_completion
from octavo.server.openai.sampling_fields import SamplingFields
from octavo.server.service.beams import BeamGeneration
from octavo.server.service.generation import Generation
from octavo.server.service.service import Service

_OF_THE_ENGINE = ("bad_words_ids", "shown_token_ids")
"""Fields of SamplingParams that no client sends."""


async def render_chat_completion(request: Request) -> Response:
    """POST /v1/chat/completions/render: {"request_id", "token_ids", "prompt", "sampling_params", "model", ...}."""
    body, turn = await read_chat(request)
    [rendered] = await _rendered(body, turn.generation, service_of(request))
    return json_response(msgspec.json.encode(rendered))


async def render_completion(request: Request) -> Response:
    """POST /v1/completions/render: a list of such, one for each prompt."""
    body, generation = await read_completion(request)
    return json_response(msgspec.json.encode(await _rendered(body, generation, service_of(request))))


async def _rendered(body: SamplingFields, generation: Generation | BeamGeneration, service: Service) -> list[dict[str, Any]]:
    """As vLLM's: sampling_params has what differs from the defaults of SamplingParams, and the limit as it will be."""
    decode = service.engine.tokenizer.decode
    settings = {name: value for name, value in msgspec.to_builtins(generation.params).items() if name not in _OF_THE_ENGINE}
    rendered = []
    for index, prompt in enumerate(generation.prompts):
        room = service.max_model_len - len(prompt.token_ids)
        limit = room if generation.params.max_tokens is None else min(generation.params.max_tokens, room)
        rendered.append(
            {
                "request_id": generation.request_id if len(generation.prompts) == 1 else f"{generation.request_id}-{index}",
                "token_ids": prompt.token_ids,
                "prompt": await asyncio.to_thread(decode, prompt.token_ids, skip_special_tokens=False),
                "sampling_params": {**settings, "max_tokens": limit},
                "model": service.model_name,
                "stream": bool(body.stream),
                "cache_salt": generation.options.cache_salt or None,
                "priority": generation.options.priority,
            }
        )
    return rendered
