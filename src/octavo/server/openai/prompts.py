"""Prompts: from what a body may hold (text, texts, token ids, lists of token ids) to checked token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from octavo.errors import InvalidRequestError
from octavo.server.service.generation import EncodedPrompt
from octavo.server.service.service import Service
from octavo.text.fill_in_middle import fim_prompt, fim_token_ids
from octavo.text.truncation import Truncation

MAX_PROMPTS = 256
"""Most prompts in one body; with n choices each they all share one answer."""


async def read_prompts(
    value: Any,
    service: Service,
    *,
    add_special_tokens: bool,
    truncation: Truncation | None = None,
    suffix: str | None = None,
) -> list[EncodedPrompt]:
    """The body's `prompt` as a list of prompts, each with at least one token; with a suffix, those that ask for the middle.

    Raises: InvalidRequestError with param "prompt" for wrong types, too many or empty prompts and ids outside the vocabulary.
    """
    if suffix is not None:
        return await _fill_in_middle(_split(value), suffix, service, add_special_tokens)
    prompts: list[EncodedPrompt] = []
    for item in _split(value):
        if isinstance(item, str):
            token_ids = await service.encode_text(
                item, service.max_model_len, add_special_tokens=add_special_tokens, truncation=truncation
            )
            prompts.append(EncodedPrompt(item, token_ids))
        else:
            token_ids = service.check_ids(item, "prompt")
            prompts.append(EncodedPrompt(None, token_ids if truncation is None else truncation.cut(token_ids)))
    for index, prompt in enumerate(prompts):
        if not prompt.token_ids:
            where = "prompt" if len(prompts) == 1 else f"prompt[{index}]"
            raise InvalidRequestError(f"{where} is empty; give at least one token", param="prompt", code="empty_prompt")
    return prompts


async def _fill_in_middle(
    parts: Sequence[str | list[Any]], suffix: str, service: Service, add_special_tokens: bool
) -> list[EncodedPrompt]:
    tokenizer = service.engine.tokenizer
    fim = fim_token_ids(tokenizer)
    if fim is None:
        raise InvalidRequestError(
            "suffix is not supported by this model: its vocabulary has no tokens to fill in the middle; leave it out, or serve"
            " a model of code that has them",
            param="suffix",
            code="unsupported_field",
        )
    limit = service.max_model_len
    behind = await service.encode_text(suffix, limit, add_special_tokens=False)
    prompts = []
    for part in parts:
        if isinstance(part, str):
            before = await service.encode_text(part, limit, add_special_tokens=False)
        else:
            before = service.check_ids(part, "prompt")
        token_ids = fim_prompt(tokenizer, fim, before, behind, add_special_tokens=add_special_tokens)
        prompts.append(EncodedPrompt(part if isinstance(part, str) else None, token_ids))
    return prompts


def _split(value: Any) -> Sequence[str | list[Any]]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        if not value:
            raise InvalidRequestError("prompt is an empty list", param="prompt", code="empty_prompt")
        kinds = {type(item) for item in value}
        if kinds <= {int, float}:
            return [value]
        if len(value) > MAX_PROMPTS and kinds <= {str, list}:
            raise InvalidRequestError(f"prompt has {len(value)} entries; at most {MAX_PROMPTS} are allowed", param="prompt")
        if kinds == {str} or kinds == {list}:
            return cast("list[str | list[Any]]", value)
    raise InvalidRequestError(
        "prompt must be a string, a list of strings, a list of token ids or a list of lists of token ids",
        param="prompt",
        code="invalid_type",
    )
