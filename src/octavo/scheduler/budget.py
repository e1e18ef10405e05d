"""The bounds of scheduling: how many tokens the sequences of one step may still take, how long one sequence may become."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config.scheduler import SchedulerConfig
from octavo.errors import ConfigError
from octavo.sequence import Sequence
from octavo.step import ScheduledSequence, ShareKind

EXTRA_LOGIT_ROWS = 64
"""Rows of logits per step beside the one per sequence that samples: for prompt tokens with logprobs, and for drafts.
A row is as long as the vocabulary, so that without a bound one prompt with prompt_logprobs would take gigabytes."""


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
    """Counts down from max_num_batched_tokens and EXTRA_LOGIT_ROWS with each share; `refund` undoes a `take`.

    A prefill counts against prefill_tokens, too, which is no bound unless it is set.
    """

    __slots__ = ("_chunk_size", "_prefill_tokens", "logit_rows", "tokens")

    def __init__(self, max_num_batched_tokens: int, chunked_prefill_size: int) -> None:
        self.tokens = max_num_batched_tokens
        self.logit_rows = EXTRA_LOGIT_ROWS
        self._chunk_size = chunked_prefill_size
        self._prefill_tokens = max_num_batched_tokens

    @property
    def prefill_tokens(self) -> int:
        """What prefills may still take; 0 when the step is full."""
        return max(0, min(self.tokens, self._prefill_tokens))

    @prefill_tokens.setter
    def prefill_tokens(self, limit: int) -> None:
        self._prefill_tokens = limit

    def share(self, sequence: Sequence, first: int, kind: ShareKind) -> int:
        """Most known tokens that the sequence may compute from position `first` on; 0 when it has to sit this step out."""
        limit = self.tokens if kind is ShareKind.DECODE else self.prefill_tokens
        num_new = sequence.num_tokens - first
        if sequence.whole:
            return num_new if num_new <= limit else 0
        if num_new > 1 or limit < 1:  # one token fits into every chunk
            num_new = min(num_new, self._chunk_size, limit)
        if sequence.wants_prompt_logprobs and sequence.num_prompt - first > self.logit_rows:
            num_new = min(num_new, self.logit_rows)
        return num_new

    def num_drafts(self, num_new: int) -> int:
        """Most drafts behind num_new known tokens. Half of the extra rows are left to prompts, which else might wait."""
        return max(0, min(self.tokens - num_new, self._chunk_size - num_new, self.logit_rows - EXTRA_LOGIT_ROWS // 2))

    def take(self, sequence: Sequence, share: ScheduledSequence, sign: int = 1) -> None:
        """Count a share of the sequence; with sign -1, take it back."""
        num_new = sign * share.num_new
        self.tokens -= num_new
        if share.kind is ShareKind.PREFILL:
            self._prefill_tokens -= num_new
        if share.draft_token_ids:
            self.logit_rows -= sign * len(share.draft_token_ids)
        if sequence.wants_prompt_logprobs:
            self.logit_rows -= sign * max(0, min(share.num_new, sequence.num_prompt - share.num_computed))

    def refund(self, sequence: Sequence, share: ScheduledSequence) -> None:
        self.take(sequence, share, -1)
