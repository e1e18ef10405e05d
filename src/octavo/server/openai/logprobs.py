"""Logprobs in the two shapes OpenAI has for them: parallel lists (completions) and one object per token (chat)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.step import TokenLogprobs
from octavo.text.tokenizer import Tokenizer

LOWEST_LOGPROB = -9999.0
"""JSON has no -Infinity; a token of probability 0 is reported with this value, as vLLM does."""


def finite(logprob: float) -> float:
    """logprob, or LOWEST_LOGPROB for minus infinity and everything below."""
    return logprob if logprob > LOWEST_LOGPROB else LOWEST_LOGPROB


class CompletionLogprobs:
    """Formats deltas of one choice as {"text_offset", "token_logprobs", "tokens", "top_logprobs"}.

    text_offset counts characters of the token texts so far, as in vLLM; it starts at 0, or after an echoed prompt.
    """

    def __init__(self, tokenizer: Tokenizer, num_top: int) -> None:
        self._tokenizer = tokenizer
        self._num_top = num_top
        self._offset = 0

    def format(self, entries: Sequence[TokenLogprobs | None], first_token_ids: Sequence[int] = ()) -> dict[str, Any]:
        """Entries in token order. An entry of None is a prompt's first token, whose id stands in first_token_ids."""
        offsets: list[int] = []
        values: list[float | None] = []
        tokens: list[str] = []
        tops: list[dict[str, float] | None] = []
        for position, entry in enumerate(entries):
            token_id = first_token_ids[position] if entry is None else entry.token_id
            text = self._tokenizer.token_text(token_id)
            offsets.append(self._offset)
            self._offset += len(text)
            tokens.append(text)
            values.append(None if entry is None else finite(entry.logprob))
            tops.append(None if entry is None else self._top(entry, text))
        return {"text_offset": offsets, "token_logprobs": values, "tokens": tokens, "top_logprobs": tops}

    def _top(self, entry: TokenLogprobs, text: str) -> dict[str, float]:
        """The alternatives and the chosen token, by text; of two tokens with one text the likelier stays."""
        top: dict[str, float] = {}
        for token_id, logprob in zip(entry.top_ids[: self._num_top], entry.top_logprobs, strict=False):
            top.setdefault(self._tokenizer.token_text(token_id), finite(logprob))
        top.setdefault(text, finite(entry.logprob))
        return top


def chat_logprobs(entries: Sequence[TokenLogprobs], tokenizer: Tokenizer, num_top: int) -> dict[str, Any]:
    """{"content": [{"token", "logprob", "bytes", "top_logprobs": [...]}, ...], "refusal": null}."""
    content = []
    for entry in entries:
        item = _chat_token(entry.token_id, entry.logprob, tokenizer)
        pairs = zip(entry.top_ids[:num_top], entry.top_logprobs, strict=False)
        item["top_logprobs"] = [_chat_token(token_id, logprob, tokenizer) for token_id, logprob in pairs]
        content.append(item)
    return {"content": content, "refusal": None}


def _chat_token(token_id: int, logprob: float, tokenizer: Tokenizer) -> dict[str, Any]:
    return {"token": tokenizer.token_text(token_id), "logprob": finite(logprob), "bytes": list(tokenizer.token_bytes(token_id))}


def prompt_logprobs_json(entries: Sequence[TokenLogprobs | None], tokenizer: Tokenizer) -> list[dict[str, Any] | None]:
    """vLLM's shape: per prompt token null or {token id: {"logprob", "rank", "decoded_token"}}; ranks count from 1."""
    answer: list[dict[str, Any] | None] = []
    for entry in entries:
        if entry is None:
            answer.append(None)
            continue
        ranked = zip(range(1, len(entry.top_ids) + 1), entry.top_ids, entry.top_logprobs, strict=True)
        tokens = {str(token_id): (logprob, rank) for rank, token_id, logprob in ranked}
        tokens[str(entry.token_id)] = (entry.logprob, entry.rank)
        answer.append(
            {
                token_id: {"logprob": finite(logprob), "rank": rank, "decoded_token": tokenizer.token_text(int(token_id))}
                for token_id, (logprob, rank) in tokens.items()
            }
        )
    return answer
