"""Logprobs in the two shapes OpenAI has for them: parallel lists (completions) and one object per token (chat)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from octavo.step import TokenLogprobs
from octavo.text.tokenizer import Tokenizer

LOWEST_LOGPROB = -9999.0
"""JSON has no -Infinity; a token of probability 0 is reported with this value, as vLLM does."""


def finite(logprob: float) -> float:
    """logprob, or LOWEST_LOGPROB for minus infinity and everything below."""
    return logprob if logprob > LOWEST_LOGPROB else LOWEST_LOGPROB


TokenText = Callable[[int], str]
"""How a token is shown."""


def token_shown(tokenizer: Tokenizer, as_ids: bool) -> TokenText:
    """The token's text, or "token_id:N", which tells tokens with equal texts apart."""
    return "token_id:{}".format if as_ids else tokenizer.token_text


class CompletionLogprobs:
    """Formats deltas of one choice as {"text_offset", "token_logprobs", "tokens", "top_logprobs"}.

    text_offset counts characters of the token texts so far, as in vLLM, also where tokens are shown as ids; it starts at 0, or
    after an echoed prompt.
    """

    def __init__(self, tokenizer: Tokenizer, num_top: int, as_ids: bool = False) -> None:
        self._tokenizer = tokenizer
        self._shown = token_shown(tokenizer, as_ids)
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
            offsets.append(self._offset)
            self._offset += len(self._tokenizer.token_text(token_id))
            shown = self._shown(token_id)
            tokens.append(shown)
            values.append(None if entry is None else finite(entry.logprob))
            tops.append(None if entry is None else self._top(entry, shown))
        return {"text_offset": offsets, "token_logprobs": values, "tokens": tokens, "top_logprobs": tops}

    def _top(self, entry: TokenLogprobs, text: str) -> dict[str, float]:
        """The alternatives and the chosen token, by text; of two tokens with one text the likelier stays."""
        top: dict[str, float] = {}
        for token_id, logprob in zip(entry.top_ids[: self._num_top], entry.top_logprobs, strict=False):
            top.setdefault(self._shown(token_id), finite(logprob))
        top.setdefault(text, finite(entry.logprob))
        return top


def chat_logprobs(
    entries: Sequence[TokenLogprobs], tokenizer: Tokenizer, num_top: int, as_ids: bool = False
) -> dict[str, Any]:
    """{"content": [{"token", "logprob", "bytes", "top_logprobs": [...]}, ...], "refusal": null}."""
    shown = token_shown(tokenizer, as_ids)

    def token(token_id: int, logprob: float) -> dict[str, Any]:
        return {"token": shown(token_id), "logprob": finite(logprob), "bytes": list(tokenizer.token_bytes(token_id))}

    content = []
    for entry in entries:
        item = token(entry.token_id, entry.logprob)
        pairs = zip(entry.top_ids[:num_top], entry.top_logprobs, strict=False)
        item["top_logprobs"] = [token(token_id, logprob) for token_id, logprob in pairs]
        content.append(item)
    return {"content": content, "refusal": None}


def prompt_logprobs_json(
    entries: Sequence[TokenLogprobs | None], tokenizer: Tokenizer, num_top: int | None = None
) -> list[dict[str, Any] | None]:
    """vLLM's shape: per prompt token null or {token id: {"logprob", "rank", "decoded_token"}}; ranks count from 1.

    num_top: alternatives that are shown; None: all there are.
    """
    answer: list[dict[str, Any] | None] = []
    for entry in entries:
        if entry is None:
            answer.append(None)
            continue
        ranked = enumerate(zip(entry.top_ids[:num_top], entry.top_logprobs[:num_top], strict=True), 1)
        tokens = {str(token_id): (logprob, rank) for rank, (token_id, logprob) in ranked}
        tokens[str(entry.token_id)] = (entry.logprob, entry.rank)
        answer.append(
            {
                token_id: {"logprob": finite(logprob), "rank": rank, "decoded_token": tokenizer.token_text(int(token_id))}
                for token_id, (logprob, rank) in tokens.items()
            }
        )
    return answer
