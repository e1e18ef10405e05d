"""What a sequence must be like to run at all: the scheduler's last line, behind the checks of the API process."""

from __future__ import annotations

from octavo.errors import ContextLengthError, InvalidRequestError
from octavo.kvcache.prefix_cache import MAX_TOKEN_ID
from octavo.sequence import Sequence


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
