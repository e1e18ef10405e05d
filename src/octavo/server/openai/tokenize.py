"""/tokenize, /detokenize, /tokenizer_info: what the model sees of a text or a conversation, and back."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.server.body import Body, ModelName, parse_body
from octavo.server.context import service_of
from octavo.server.described import OptionalMessages, TokenIds
from octavo.server.errors import json_response
from octavo.server.json_body import read_json_object
from octavo.server.openai.sampling_fields import TruncationFields, truncation
from octavo.server.openai.template_fields import TemplateFields, encode_messages
from octavo.server.service.service import Service


class TokenizeBody(TemplateFields, TruncationFields):
    """Either prompt, a text, or messages, a conversation rendered as /v1/chat/completions would.

    return_token_strs  the answer holds the tokens as the vocabulary spells them
    """

    model: ModelName | None = None
    prompt: str | None = None
    messages: OptionalMessages = None
    return_token_strs: bool | None = None


class DetokenizeBody(Body):
    """tokens: ids below the vocabulary size."""

    model: ModelName | None = None
    tokens: TokenIds


async def tokenize(request: Request) -> Response:
    """POST /tokenize: {"count", "max_model_len", "tokens", "token_strs"}."""
    service = service_of(request)
    body = parse_body(TokenizeBody, await read_json_object(request))
    service.check_model(body.model)
    token_ids = await _token_ids(body, service)
    return json_response(await asyncio.to_thread(_answer, token_ids, service, bool(body.return_token_strs)))


def _answer(token_ids: list[int], service: Service, with_texts: bool) -> bytes:
    tokenizer = service.engine.tokenizer
    return msgspec.json.encode(
        {
            "count": len(token_ids),
            "max_model_len": service.max_model_len,
            "tokens": token_ids,
            "token_strs": [tokenizer.id_to_token(i) for i in token_ids] if with_texts else None,
        }
    )


async def _token_ids(body: TokenizeBody, service: Service) -> list[int]:
    if (body.prompt is None) == (body.messages is None):
        raise InvalidRequestError("give either prompt or messages", param="prompt", code="missing_field")
    limit, cut = service.max_counted, truncation(body, service, None)
    if body.prompt is None:
        return await encode_messages(body, service, limit, cut)
    adds = body.add_special_tokens is not False
    return await service.encode_text(body.prompt, limit, add_special_tokens=adds, truncation=cut)


async def detokenize(request: Request) -> Response:
    """POST /detokenize: {"prompt": text}, control tokens included."""
    service = service_of(request)
    body = parse_body(DetokenizeBody, await read_json_object(request))
    service.check_model(body.model)
    if not isinstance(body.tokens, list):
        raise InvalidRequestError("tokens must be a list of token ids", param="tokens", code="invalid_type")
    limit = service.max_counted
    if len(body.tokens) > limit:
        raise InvalidRequestError(f"tokens has {len(body.tokens)} entries; at most {limit} are allowed", param="tokens")
    token_ids = service.check_ids(body.tokens, "tokens")
    text = await asyncio.to_thread(service.engine.tokenizer.decode, token_ids, skip_special_tokens=False)
    return json_response(msgspec.json.encode({"prompt": text}))


async def tokenizer_info(request: Request) -> Response:
    """GET /tokenizer_info: the tokenizer's settings, by the names of tokenizer_config.json, with the chat template in force."""
    service = service_of(request)
    tokenizer = service.engine.tokenizer
    added = {
        str(token_id): {"content": content, "special": token_id in tokenizer.special_token_ids}
        for token_id, content in tokenizer.added_tokens.items()
    }
    info = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "vocab_size": tokenizer.vocab_size,
        "model_max_length": service.max_model_len,
        "add_bos_token": tokenizer.adds_bos,
        **tokenizer.spec.special_tokens,
        "added_tokens_decoder": added,
        "chat_template": service.engine.chat_template.source,
    }
    return json_response(msgspec.json.encode(info))
