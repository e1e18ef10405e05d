"""Prompts: from what a body may hold (text, texts, token ids, lists of token ids) to checked token ids."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from octavo.errors import ContextLengthError, InvalidRequestError
from octavo.server.context import ServerContext

MAX_PROMPTS = 256
"""Most prompts in one body; with n choices each they all share one answer."""


@dataclass(slots=True)
class Prompt:
    """One prompt. text is as the client sent it, or None when it sent token ids."""

    text: str | None
    token_ids: list[int]


async def read_prompts(value: Any, context: ServerContext, *, add_special_tokens: bool) -> list[Prompt]:
    """The body's `prompt` as a list of prompts, each with at least one token.

    Raises: InvalidRequestError with param "prompt" for wrong types, too many or empty prompts and ids outside the vocabulary.
    """
    prompts: list[Prompt] = []
    for item in _split(value):
        if isinstance(item, str):
            token_ids = await encode_text(item, context, context.max_model_len, add_special_tokens=add_special_tokens)
            prompts.append(Prompt(item, token_ids))
        else:
            prompts.append(Prompt(None, checked_ids(item, context.vocab_size, "prompt")))
    for index, prompt in enumerate(prompts):
        if not prompt.token_ids:
            where = "prompt" if len(prompts) == 1 else f"prompt[{index}]"
            raise InvalidRequestError(f"{where} is empty; give at least one token", param="prompt", code="empty_prompt")
    return prompts


async def encode_text(text: str, context: ServerContext, max_tokens: int, *, add_special_tokens: bool) -> list[int]:
    """Token ids of a prompt, which may be refused early when there are clearly more than max_tokens.

    In a thread: a long prompt takes a good part of a second, and the streams of others must go on.
    """
    tokenizer = context.engine.tokenizer

    def encode() -> list[int]:
        tokenizer.require_fits(text, max_tokens, "prompt")
        return tokenizer.encode(text, add_special_tokens=add_special_tokens)

    return await asyncio.to_thread(encode)


def _split(value: Any) -> Sequence[str | list[Any]]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        if not value:
            raise InvalidRequestError("prompt is an empty list", param="prompt", code="empty_prompt")
        kinds = {type(item) for item in value}
        if kinds == {int}:
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


def checked_ids(ids: list[Any], vocab_size: int, param: str) -> list[int]:
    """ids unless one is no token id of the vocabulary: InvalidRequestError."""
    if ids and {type(token_id) for token_id in ids} != {int}:
        raise InvalidRequestError(f"{param} mixes token ids with other values", param=param, code="invalid_type")
    if ids and not (min(ids) >= 0 and max(ids) < vocab_size):
        wrong = next(token_id for token_id in ids if not 0 <= token_id < vocab_size)
        shown = wrong if abs(wrong) < 2**63 else "too large a number"
        raise InvalidRequestError(
            f"{param} holds token id {shown}; the vocabulary has ids 0..{vocab_size - 1}",
            param=param,
            code="token_out_of_range",
        )
    return ids


def output_budget(num_prompt_tokens: int, max_tokens: int | None, max_model_len: int, param: str) -> int:
    """max_tokens, or all that the context leaves when it is None. Raises ContextLengthError when it does not fit."""
    room = max_model_len - num_prompt_tokens
    if room < 1:
        raise ContextLengthError(
            f"the prompt has {num_prompt_tokens} tokens; the context is {max_model_len} tokens, one of them for the answer",
            param="prompt",
        )
    if max_tokens is None:
        return room
    if max_tokens > room:
        raise ContextLengthError(
            f"the prompt has {num_prompt_tokens} tokens and {param} is {max_tokens}, in all {num_prompt_tokens + max_tokens}, "
            f"more than the context of {max_model_len} tokens; lower {param} to {room} or shorten the prompt",
            param=param,
        )
    return max_tokens
