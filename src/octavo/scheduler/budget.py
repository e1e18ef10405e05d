"""The bounds of scheduling: how many tokens the sequences of one step may still take, how long one sequence may become."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config.scheduler import SchedulerConfig
from octavo.errors import ConfigError
from octavo.sequence import Sequence

PROMPT_LOGPROBS_TOKENS_PER_STEP = 64
"""Most prompt tokens per step, all sequences together, whose sequences want prompt_logprobs. Each such token needs its whole
row of logits (vocabulary x 4 bytes: 0.2 MB at 49,152 entries, 1 MB at 262,144) in memory at once, which this bounds to tens of
MB; without it one prompt of 8,000 tokens would take gigabytes."""


def wants_prompt_logprobs(sequence: Sequence) -> bool:
    return sequence.request.sampling.prompt_logprobs is not None


def check_capacity(max_model_len: int, num_blocks: int, block_size: int, *, param: str) -> None:
    """Raise ConfigError, naming param, unless the pool can hold one sequence of max_model_len: else it could wait for ever."""
    capacity = num_blocks * block_size
    if max_model_len > capacity:
        raise ConfigError(
            f"max_model_len is {max_model_len} tokens, but the KV cache holds {capacity} ({num_blocks} blocks of {block_size}):"
            f" lower --max-model-len or raise --kv-cache-memory",
            param=param,
        )


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What a step may hold under a configuration.

    max_seqs      sequences: no more than tokens, so that every running decode advances in every step
    chunk_size    prompt tokens of one sequence; a latency target takes the place of chunked_prefill_size
    target_itl_s  seconds that a step with decodes should take at most; None: no such target
    """

    max_seqs: int
    max_tokens: int
    chunk_size: int
    target_itl_s: float | None

    @classmethod
    def of(cls, config: SchedulerConfig) -> StepLimits:
        tokens, target_ms = config.max_num_batched_tokens, config.target_itl
        chunk_size = config.chunked_prefill_size if target_ms is None else tokens
        return cls(min(config.max_num_seqs, tokens), tokens, chunk_size, None if target_ms is None else target_ms / 1e3)


class StepBudget:
    """Counts down from max_num_batched_tokens (and the prompt_logprobs bound) with each share; `refund` undoes a `take`.

    A share of more than one token is a prefill and counts against prefill_tokens, too, which is no bound unless it is set.
    """

    __slots__ = ("_chunk_size", "_prefill_tokens", "logprob_tokens", "tokens")

    def __init__(self, max_num_batched_tokens: int, chunked_prefill_size: int) -> None:
        self.tokens = max_num_batched_tokens
        self.logprob_tokens = PROMPT_LOGPROBS_TOKENS_PER_STEP
        self._chunk_size = chunked_prefill_size
        self._prefill_tokens = max_num_batched_tokens

    @property
    def prefill_tokens(self) -> int:
        """What prefills may still take; 0 when the step is full."""
        return max(0, min(self.tokens, self._prefill_tokens))

    @prefill_tokens.setter
    def prefill_tokens(self, limit: int) -> None:
        self._prefill_tokens = limit

    def share(self, sequence: Sequence, first: int) -> int:
        """Most tokens that the sequence may compute from position `first` on in this step; 0 when it has to sit it out."""
        num_left = sequence.num_tokens - first
        num_new = min(num_left, self._chunk_size, self.prefill_tokens if num_left > 1 else self.tokens)
        if wants_prompt_logprobs(sequence) and sequence.num_prompt - first > self.logprob_tokens:
            num_new = min(num_new, self.logprob_tokens)
        return num_new

    def take(self, sequence: Sequence, first: int, num_new: int) -> None:
        self._count(sequence, first, num_new, -1)

    def refund(self, sequence: Sequence, first: int, num_new: int) -> None:
        self._count(sequence, first, num_new, 1)

    def _count(self, sequence: Sequence, first: int, num_new: int, sign: int) -> None:
        self.tokens += sign * num_new
        if sequence.num_tokens - first > 1:
            self._prefill_tokens += sign * num_new
        if wants_prompt_logprobs(sequence):
            self.logprob_tokens += sign * max(0, min(num_new, sequence.num_prompt - first))
