"""Usage: tokens counted for one answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Usage:
    """prompt_tokens counts each prompt once, whatever n is; cached_tokens is the part of them found in the prefix cache."""

    counts_completion: bool = True
    """False for an echo of the prompt alone (max_tokens 0), where the engine's one token is not part of the answer."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    def add_completion(self, num_tokens: int) -> None:
        if self.counts_completion:
            self.completion_tokens += num_tokens

    def as_json(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }
