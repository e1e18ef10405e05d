"""/v1/rerank, /v2/rerank, /rerank: documents in the order of their likeness to a query, as Jina and Cohere answer it."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.engine.frontend.pooling import cosine
from octavo.server.body import Count, parse_body
from octavo.server.context import service_of
from octavo.server.described import Documents
from octavo.server.json_body import read_json_object
from octavo.server.openai.chunks import encode
from octavo.server.openai.embedding_fields import UNSUPPORTED, EmbeddingFields, as_texts, read_texts
from octavo.server.service.embeddings import Embeddings
from octavo.server.service.generation import new_request_id
from octavo.server.sse import JsonAnswer


class RerankBody(EmbeddingFields):
    """documents: texts, or objects with a text.

    top_n             how many of the best are wanted; 0, or more than there are: all
    return_documents  false leaves the texts out of the answer
    """

    query: str
    documents: Documents
    top_n: Count | None = None
    return_documents: bool | None = None


async def rerank(request: Request) -> Response:
    """POST /v1/rerank."""
    service = service_of(request)
    body = parse_body(RerankBody, await read_json_object(request), {**UNSUPPORTED, "max_chunks_per_doc": (), "rank_fields": ()})
    service.check_model(body.model)
    params = body.pooling_params(service)
    documents = as_texts(body.documents, "documents")
    max_kept = body.truncate_prompt_tokens
    prompts = [
        *await read_texts(service, [body.query], "query", max_kept),
        *await read_texts(service, documents, "documents", max_kept),
    ]
    job = Embeddings(request_id=new_request_id("rerank"), prompts=prompts, params=params, options=body.options(request))

    async def answer() -> bytes:
        query, *others = [result.outputs.data for result in await job.collect(service.engine)]
        scores = [cosine(query, other) for other in others]
        # Of equal scores the earlier document comes first.
        order = sorted(range(len(scores)), key=lambda index: -scores[index])[: body.top_n or len(scores)]
        results: list[dict[str, Any]] = []
        for index in order:
            text = {} if body.return_documents is False else {"document": {"text": documents[index]}}
            results.append({"index": index, **text, "relevance_score": scores[index]})
        usage = {"prompt_tokens": job.num_tokens, "total_tokens": job.num_tokens}
        return encode({"id": job.request_id, "model": service.model_name, "usage": usage, "results": results})

    return JsonAnswer(answer)
