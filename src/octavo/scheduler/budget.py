"""The bounds of scheduling: how many tokens the sequences of one step may still take, how long one sequence may become."""

from __future__ import annotations

from octavo.errors import ConfigError
from octavo.sequence import Sequence

PROMPT_LOGPROBS_TOKENS_PER_STEP = 64
"""Most prompt tokens per step, all sequences together, whose sequences want prompt_logprobs. Each such token needs its whole
row of logits (vocabulary x 4 bytes: 0.2 MB at 49,152 entries, 1 MB at 262,144) in memory at once, which this bounds to tens of
MB; without it one prompt of 8,000 tokens would take gigabytes."""


def wants_prompt_logprobs(sequence: Sequence) -> bool:
    return sequence.sampling.prompt_logprobs is not None


def check_capacity(max_model_len: int, num_blocks: int, block_size: int, *, param: str) -> None:
    """Raise ConfigError, naming param, unless the pool can hold one sequence of max_model_len: else it could wait for ever."""
    capacity = num_blocks * block_size
    if max_model_len > capacity:
        raise ConfigError(
            f"max_model_len is {max_model_len} tokens, but the KV cache holds {capacity} ({num_blocks} blocks of {block_size}):"
            f" lower --max-model-len or raise --kv-cache-memory",
            param=param,
        )


class StepBudget:
    """Counts down from max_num_batched_tokens (and the prompt_logprobs bound) with each share; `refund` undoes a `take`."""

    __slots__ = ("_chunk_size", "logprob_tokens", "tokens")

    def __init__(self, max_num_batched_tokens: int, chunked_prefill_size: int) -> None:
        self.tokens = max_num_batched_tokens
        self.logprob_tokens = PROMPT_LOGPROBS_TOKENS_PER_STEP
        self._chunk_size = chunked_prefill_size

    def share(self, sequence: Sequence, first: int) -> int:
        """Most tokens that the sequence may compute from position `first` on in this step; 0 when it has to sit it out."""
        num_new = min(sequence.num_tokens - first, self.tokens, self._chunk_size)
        if wants_prompt_logprobs(sequence) and sequence.num_prompt - first > self.logprob_tokens:
            num_new = min(num_new, self.logprob_tokens)
        return num_new

    def take(self, sequence: Sequence, first: int, num_new: int) -> None:
        self._count(sequence, first, num_new, -1)

    def refund(self, sequence: Sequence, first: int, num_new: int) -> None:
        self._count(sequence, first, num_new, 1)

    def _count(self, sequence: Sequence, first: int, num_new: int, sign: int) -> None:
        self.tokens += sign * num_new
        if wants_prompt_logprobs(sequence):
            self.logprob_tokens += sign * max(0, min(num_new, sequence.num_prompt - first))
