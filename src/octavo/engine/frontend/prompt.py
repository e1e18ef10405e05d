"""Prompt: the forms in which a prompt may be given, those of vLLM among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from octavo.errors import InvalidRequestError, did_you_mean


class TextPrompt(TypedDict, total=False):
    """A prompt as text. cache_salt: only requests with an equal one share prefix-cache blocks with it."""

    prompt: str
    cache_salt: str


class TokensPrompt(TypedDict, total=False):
    """A prompt as token ids; `prompt`, its text, is only handed back in the output."""

    prompt_token_ids: list[int]
    prompt: str
    cache_salt: str


Prompt = str | Sequence[int] | TextPrompt | TokensPrompt | Mapping[str, Any]

_KEYS = ("prompt", "prompt_token_ids", "cache_salt")


@dataclass(frozen=True, slots=True)
class PromptParts:
    """What a prompt says: its text, its token ids (None: those of the text), and its cache_salt (None: the request's)."""

    text: str | None
    token_ids: list[int] | None
    cache_salt: str | None = None


def read_prompt(prompt: Prompt) -> PromptParts:
    """The parts of a prompt in any of its forms. Raises InvalidRequestError for anything else."""
    if isinstance(prompt, str):
        return PromptParts(prompt, None)
    if not isinstance(prompt, Mapping):
        return PromptParts(None, _token_ids(prompt))
    for key, value in prompt.items():
        if key not in _KEYS and value is not None and value != {}:
            raise InvalidRequestError(
                f"a prompt has the key {str(key)[:100]!r}, which is not supported; known: {', '.join(_KEYS)}"
                f"{did_you_mean(str(key), _KEYS)}",
                param="prompt",
            )
    text, token_ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
    if text is not None and not isinstance(text, str):
        raise InvalidRequestError(f"prompt must be text, not {type(text).__name__}", param="prompt")
    if text is None and token_ids is None:
        raise InvalidRequestError("a prompt must have prompt or prompt_token_ids", param="prompt")
    return PromptParts(text, None if token_ids is None else _token_ids(token_ids), prompt.get("cache_salt"))


def _token_ids(given: object) -> list[int]:
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Sequence):
        raise InvalidRequestError(f"a prompt must be text or a list of token ids, not {type(given).__name__}", param="prompt")
    token_ids = list(given)
    if not token_ids:
        raise InvalidRequestError("the prompt is empty; give at least one token id", param="prompt")
    if not set(map(type, token_ids)) <= {int}:
        raise InvalidRequestError("a prompt of token ids must hold integers only", param="prompt")
    return token_ids
