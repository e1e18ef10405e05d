"""/api/embed and /api/embeddings, its older form: texts to vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.pooling_params import PoolingParams
from octavo.request import RequestOptions
from octavo.server.body import Body, Int32, ModelName, parse_body
from octavo.server.context import service_of, tenant_of
from octavo.server.described import Texts
from octavo.server.errors import json_response
from octavo.server.json_body import read_json_object
from octavo.server.ollama.answers import Clock, encode
from octavo.server.ollama.fields import Options
from octavo.server.ollama.names import check_model
from octavo.server.openai.embedding_fields import check_count, read_texts
from octavo.server.service.embeddings import Embeddings
from octavo.server.service.generation import new_request_id
from octavo.server.service.service import Service
from octavo.server.sse import JsonAnswer

WHOLE_CONTEXT = -1
"""Of a text that is longer, as much is kept as the context holds."""


class _Fields(Body):
    model: ModelName | None = None
    options: Options | None = None
    keep_alive: float | str | None = None


class EmbedBody(_Fields):
    """input: a text, or a list of texts; without one the answer has no vector. truncate: absent means true."""

    input: Texts = None
    truncate: bool | None = None
    dimensions: Int32 | None = None


class EmbeddingsBody(_Fields):
    """Without a prompt the answer has an empty vector. The vector is not normalised, unlike those of /api/embed."""

    prompt: str | None = None


async def embed(request: Request) -> Response:
    """POST /api/embed: {"model", "embeddings": [[...]], ...}."""
    clock, service = Clock(), service_of(request)
    body = parse_body(EmbedBody, await read_json_object(request), {})
    check_model(service, body.model)
    name = body.model or service.model_name
    if not body.input:
        return json_response(encode({"model": name, "embeddings": []}))
    texts = [body.input] if isinstance(body.input, str) else body.input
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InvalidRequestError("input must be a text or a list of texts", param="input", code="invalid_type")
    check_count(len(texts), "input")
    params = PoolingParams(dimensions=body.dimensions)
    max_kept = None if body.truncate is False else WHOLE_CONTEXT
    job = await _job(request, service, texts, "input", params, max_kept)

    def answer(vectors: list[list[float]]) -> dict[str, Any]:
        times = {"total_duration": clock.elapsed_ns(), "load_duration": 0, "prompt_eval_count": job.num_tokens}
        return {"model": name, "embeddings": vectors, **times}

    return _answered(job, service, answer)


async def embeddings(request: Request) -> Response:
    """POST /api/embeddings: {"embedding": [...]}."""
    service = service_of(request)
    body = parse_body(EmbeddingsBody, await read_json_object(request), {})
    check_model(service, body.model)
    if not body.prompt:
        return json_response(encode({"embedding": []}))
    params = PoolingParams(use_activation=False)
    job = await _job(request, service, [body.prompt], "prompt", params, WHOLE_CONTEXT)
    return _answered(job, service, lambda vectors: {"embedding": vectors[0]})


async def _job(
    request: Request, service: Service, texts: list[str], param: str, params: PoolingParams, max_kept: int | None
) -> Embeddings:
    """Everything that can be wrong with the body raises here, before any part of it runs."""
    params.validate(service.engine.model_config.hidden_size, service.max_model_len)
    prompts = await read_texts(service, texts, param, max_kept, cut="truncate to true")
    options = RequestOptions(tenant=tenant_of(request, None))
    return Embeddings(request_id=new_request_id("embd"), prompts=prompts, params=params, options=options)


def _answered(job: Embeddings, service: Service, answer: Callable[[list[list[float]]], dict[str, Any]]) -> Response:
    async def make() -> bytes:
        results = await job.collect(service.engine)
        # Thousands of numbers to digits: not on the event loop.
        return await asyncio.to_thread(lambda: encode(answer([result.outputs.data.tolist() for result in results])))

    return JsonAnswer(make)
