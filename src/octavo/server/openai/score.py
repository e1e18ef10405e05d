"""/v1/score: how alike two texts are, by the cosine of their embeddings."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response

from octavo.engine.frontend.pooling import cosine
from octavo.errors import InvalidRequestError
from octavo.server.body import parse_body
from octavo.server.context import service_of
from octavo.server.described import Texts
from octavo.server.json_body import read_json_object
from octavo.server.openai.chunks import encode
from octavo.server.openai.embedding_fields import UNSUPPORTED, EmbeddingFields, as_texts, read_texts
from octavo.server.service.embeddings import Embeddings
from octavo.server.service.generation import new_request_id
from octavo.server.sse import JsonAnswer

_NAMES = (("text_1", "text_2"), ("queries", "documents"))
"""What vLLM calls the two sides."""


class ScoreBody(EmbeddingFields):
    """text_1 and text_2, or queries and documents: a text or a list of texts each. One text on the left is paired with all."""

    text_1: Texts = None
    text_2: Texts = None
    queries: Texts = None
    documents: Texts = None


async def score(request: Request) -> Response:
    """POST /v1/score: a score for each pair."""
    service = service_of(request)
    body = parse_body(ScoreBody, await read_json_object(request), UNSUPPORTED)
    service.check_model(body.model)
    params = body.pooling_params(service)
    left, right = _sides(body)
    ones, others = as_texts(getattr(body, left), left), as_texts(getattr(body, right), right)
    if len(ones) not in (1, len(others)):
        raise InvalidRequestError(
            f"{left} has {len(ones)} texts and {right} has {len(others)}; {left} must have as many, or one", param=left
        )
    max_kept = body.truncate_prompt_tokens
    prompts = [*await read_texts(service, ones, left, max_kept), *await read_texts(service, others, right, max_kept)]
    job = Embeddings(request_id=new_request_id("score"), prompts=prompts, params=params, options=body.options(request))

    async def answer() -> bytes:
        vectors = [result.outputs.data for result in await job.collect(service.engine)]
        pairs = zip(vectors[: len(ones)] * (len(others) if len(ones) == 1 else 1), vectors[len(ones) :], strict=True)
        data = [{"index": index, "object": "score", "score": cosine(*pair)} for index, pair in enumerate(pairs)]
        usage = {"prompt_tokens": job.num_tokens, "completion_tokens": 0, "total_tokens": job.num_tokens}
        head = {"id": job.request_id, "object": "list", "created": int(time.time()), "model": service.model_name}
        return encode({**head, "data": data, "usage": usage})

    return JsonAnswer(answer)


def _sides(body: ScoreBody) -> tuple[str, str]:
    """The names of the two fields that are given. Raises InvalidRequestError."""
    given = {name for names in _NAMES for name in names if getattr(body, name) is not None}
    for names in _NAMES:
        if given == set(names):
            return names
    raise InvalidRequestError("give text_1 and text_2, or queries and documents", param="text_1", code="missing_field")
