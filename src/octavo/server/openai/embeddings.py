"""/v1/embeddings: texts to vectors."""

from __future__ import annotations

import asyncio
import base64
import time
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from octavo.engine.frontend.pooling_outputs import PoolingRequestOutput
from octavo.errors import InvalidRequestError
from octavo.server.body import Int32, parse_body
from octavo.server.context import service_of
from octavo.server.described import OptionalMessages, OptionalPrompts
from octavo.server.json_body import read_json_object
from octavo.server.openai.chunks import encode
from octavo.server.openai.embedding_fields import UNSUPPORTED, EmbeddingFields, check_count, check_prompts
from octavo.server.openai.template_fields import TemplateFields, encode_messages
from octavo.server.service.embeddings import Embeddings, encode_texts, kept_ids
from octavo.server.service.generation import new_request_id
from octavo.server.service.service import Service
from octavo.server.sse import JsonAnswer

EncodingFormat = Literal["float", "base64"]


class EmbeddingBody(EmbeddingFields, TemplateFields):
    """Either input, a string, a list of strings, token ids or a list of lists of token ids; or messages, a conversation.

    dimensions  keep the first so many numbers; what is kept is normalised afterwards
    """

    input: OptionalPrompts = None
    messages: OptionalMessages = None
    encoding_format: EncodingFormat = "float"
    dimensions: Int32 | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = False


async def create_embeddings(request: Request) -> Response:
    """POST /v1/embeddings."""
    service = service_of(request)
    body = parse_body(EmbeddingBody, await read_json_object(request), UNSUPPORTED)
    service.check_model(body.model)
    params = body.pooling_params(service, body.dimensions)
    prompts = await _prompts(body, service)
    job = Embeddings(request_id=new_request_id("embd"), prompts=prompts, params=params, options=body.options(request))

    async def answer() -> bytes:
        results = await job.collect(service.engine)
        # Thousands of numbers to digits: not on the event loop.
        return await asyncio.to_thread(_answer, job, results, service.model_name, body.encoding_format)

    return JsonAnswer(answer)


async def _prompts(body: EmbeddingBody, service: Service) -> list[list[int]]:
    if (body.input is None) == (body.messages is None):
        raise InvalidRequestError("give either input or messages", param="input", code="missing_field")
    max_kept = body.truncate_prompt_tokens
    if body.input is None:
        prompts = [kept_ids(service, await encode_messages(body, service, service.max_model_len), max_kept)]
        check_prompts(service, prompts, "messages")
        return prompts
    items = _split(body.input)
    texts = [item for item in items if isinstance(item, str)]
    if texts:
        special = body.add_special_tokens is not False
        prompts = await encode_texts(service, texts, "input", max_kept, add_special_tokens=special)
    else:
        prompts = [kept_ids(service, service.check_ids(list(item), "input"), max_kept) for item in items]
    check_prompts(service, prompts, "input")
    return prompts


def _split(value: Any) -> list[Any]:
    """The inputs: all strings, or all lists."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        kinds = {type(item) for item in value}
        if kinds and kinds <= {int, float}:
            return [value]
        check_count(len(value), "input")
        if kinds == {str} or kinds == {list}:
            return value
    raise InvalidRequestError(
        "input must be a string, a list of strings, a list of token ids or a list of lists of token ids",
        param="input",
        code="invalid_type",
    )


def _answer(job: Embeddings, results: list[PoolingRequestOutput], model: str, encoding_format: EncodingFormat) -> bytes:
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(result, encoding_format)}
        for index, result in enumerate(results)
    ]
    num_tokens = job.num_tokens
    return encode(
        {
            "id": job.request_id,
            "object": "list",
            "created": int(time.time()),
            "model": model,
            "data": data,
            "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
        }
    )


def _encoded(result: PoolingRequestOutput, encoding_format: EncodingFormat) -> list[float] | str:
    """base64 is of little-endian float32."""
    vector = result.outputs.data
    if encoding_format == "float":
        numbers: list[float] = vector.tolist()
        return numbers
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
