"""Fill in the middle: the prompt that asks a model of code for what stands between a prefix and a suffix."""

from __future__ import annotations

from octavo.text.tokenizer import Tokenizer

_NAMES = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek-Coder
)
"""Tokens before prefix, suffix and middle, as the families call them."""


def fim_token_ids(tokenizer: Tokenizer) -> tuple[int, int, int] | None:
    """Ids of the tokens before prefix, suffix and middle: those that the file names, else those with a known name; or None."""
    if tokenizer.spec.fim_token_ids is not None:
        return tokenizer.spec.fim_token_ids
    for names in _NAMES:
        prefix, suffix, middle = map(tokenizer.token_to_id, names)
        if prefix is not None and suffix is not None and middle is not None:
            return prefix, suffix, middle
    return None


def fim_prompt(
    tokenizer: Tokenizer, fim: tuple[int, int, int], prefix: list[int], suffix: list[int], *, add_special_tokens: bool
) -> list[int]:
    """Token ids: the model's BOS if it wants one, then prefix, suffix and the place of the middle, each behind its token."""
    begin = list(tokenizer.spec.prefix_ids) if add_special_tokens else []
    return [*begin, fim[0], *prefix, fim[1], *suffix, fim[2]]
