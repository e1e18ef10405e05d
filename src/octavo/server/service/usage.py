"""Usage: tokens counted for one answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Usage:
    """prompt_tokens counts each prompt once, whatever n is; cached_tokens is the part of them found in the prefix cache."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
