"""What must hold for anything to run at all: the scheduler's last line, behind the checks of the API process."""

from __future__ import annotations

from octavo.config.scheduler import SchedulerConfig
from octavo.errors import ConfigError, ContextLengthError, InvalidRequestError
from octavo.kvcache.manager import KVCacheManager
from octavo.kvcache.prefix_cache import MAX_TOKEN_ID
from octavo.scheduler.budget import check_capacity
from octavo.sequence import Sequence


def resolved_max_model_len(config: SchedulerConfig, manager: KVCacheManager) -> int:
    """Raises ConfigError when max_model_len is not resolved or the pool cannot hold one sequence of that length."""
    if config.max_model_len is None:
        raise ConfigError("max_model_len must be resolved before a scheduler is made", param="max_model_len")
    check_capacity(config.max_model_len, manager.num_blocks, manager.block_size, param="max_model_len")
    return config.max_model_len


def check_runnable(sequence: Sequence, max_model_len: int) -> None:
    """Raise an InvalidRequestError for a sequence that could never run."""
    prompt = sequence.prompt_token_ids
    if not prompt:
        raise InvalidRequestError("the prompt has no tokens", param="prompt")
    if len(prompt) >= max_model_len:
        raise ContextLengthError(
            f"the prompt has {len(prompt)} tokens, which leaves no room for an answer: prompt and output together may have"
            f" {max_model_len}",
            param="prompt",
        )
    if min(prompt) < 0 or max(prompt) > MAX_TOKEN_ID:
        raise InvalidRequestError("the prompt holds a number that is no token", param="prompt", code="token_out_of_range")
