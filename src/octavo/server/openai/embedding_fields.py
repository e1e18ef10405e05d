"""The request fields that embeddings, scores and rankings share, and how texts in a body become checked prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from octavo.errors import InvalidRequestError
from octavo.pooling_params import PoolingParams
from octavo.request import RequestOptions
from octavo.server.body import UNSUPPORTED_FIELDS, Body, CacheSalt, Int32, ModelName, Tenant
from octavo.server.context import tenant_of
from octavo.server.service.embeddings import encode_texts, require_fits
from octavo.server.service.service import Service

MAX_TEXTS = 2048
"""Most texts in one body, as OpenAI has it."""

CUT_FIELD = "truncate_prompt_tokens"
"""What has a prompt cut to the context in vLLM's bodies."""

UNSUPPORTED = {
    **UNSUPPORTED_FIELDS,
    "mm_processor_kwargs": (),
    "softmax": (),
    "activation": (),
    "embed_dtype": ("float32",),
    "endianness": ("native", "little"),
}


class EmbeddingFields(Body):
    """normalize is the older name of use_activation."""

    model: ModelName | None = None
    user: Tenant | None = None
    priority: Int32 | None = None
    cache_salt: CacheSalt | None = None
    truncate_prompt_tokens: Int32 | None = None
    normalize: bool | None = None
    use_activation: bool | None = None

    def options(self, request: Request) -> RequestOptions:
        return RequestOptions(
            priority=self.priority or 0, cache_salt=self.cache_salt or "", tenant=tenant_of(request, self.user)
        )

    def pooling_params(self, service: Service, dimensions: int | None = None) -> PoolingParams:
        """Checked against the model. Raises InvalidRequestError naming the field."""
        params = PoolingParams(
            dimensions=dimensions,
            use_activation=self.use_activation,
            normalize=self.normalize,
            truncate_prompt_tokens=self.truncate_prompt_tokens,
        )
        params.validate(service.engine.model_config.hidden_size, service.max_model_len)
        return params


async def read_texts(
    service: Service, texts: Sequence[str], param: str, max_kept: int | None, *, cut: str = CUT_FIELD
) -> list[list[int]]:
    """Token ids of each text; cut is the field that has a long one cut. Raises: InvalidRequestError naming the text that is
    empty or too long."""
    prompts = await encode_texts(service, texts, param, max_kept)
    check_prompts(service, prompts, param, cut=cut)
    return prompts


def check_prompts(service: Service, prompts: Sequence[list[int]], param: str, *, cut: str = CUT_FIELD) -> None:
    """Raise InvalidRequestError for the first prompt that is empty, too long or outside the vocabulary."""
    for index, token_ids in enumerate(prompts):
        where = param if len(prompts) == 1 else f"{param}[{index}]"
        if not token_ids:
            raise InvalidRequestError(f"{where} is empty; give at least one token", param=param, code="empty_prompt")
        require_fits(service, token_ids, where, cut)
        service.check_ids(token_ids, param)


def check_count(count: int, param: str) -> None:
    """Raise InvalidRequestError for no text, or for too many."""
    if count == 0:
        raise InvalidRequestError(f"{param} is an empty list; give at least one text", param=param, code="empty_prompt")
    if count > MAX_TEXTS:
        raise InvalidRequestError(
            f"{param} has {count} entries; at most {MAX_TEXTS} are allowed, send the others in further requests", param=param
        )


def as_texts(value: Any, param: str) -> list[str]:
    """A text, a list of texts, or a list of objects with a text: {"text": "..."}. Raises InvalidRequestError."""
    values = value if isinstance(value, list) else [value]
    check_count(len(values), param)
    texts: list[Any] = [item["text"] if isinstance(item, dict) and item.keys() == {"text"} else item for item in values]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidRequestError(f"{param} must be a text or a list of texts", param=param, code="invalid_type")
    return texts
