"""What must hold: for anything to run at all, and between the books of scheduler, KV cache and worker at any moment.

The first is the scheduler's last line, behind the checks of the API process; the second is for tests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set

from octavo.config.cache import blocks_for
from octavo.config.resolved import ResolvedSchedulerConfig
from octavo.errors import ContextLengthError, InvalidRequestError
from octavo.kvcache.manager import KVCacheManager
from octavo.kvcache.prefix_cache import MAX_TOKEN_ID
from octavo.scheduler.budget import StepLimits, check_capacity
from octavo.sequence import Sequence


def fitting_max_model_len(config: ResolvedSchedulerConfig, manager: KVCacheManager) -> int:
    """Raises ConfigError when the pool cannot hold one sequence of that length."""
    check_capacity(config.max_model_len, manager.num_blocks, manager.block_size, param="max_model_len")
    return config.max_model_len


def check_runnable(sequence: Sequence, max_model_len: int) -> None:
    """Raise an InvalidRequestError for a sequence that could never run."""
    prompt = sequence.request.prompt_token_ids
    if not prompt:
        raise InvalidRequestError("the prompt has no tokens", param="prompt")
    if sequence.request.pooling is not None and len(prompt) <= max_model_len:
        pass  # it needs no room for an answer
    elif len(prompt) >= max_model_len:
        raise ContextLengthError(
            f"the prompt has {len(prompt)} tokens, which leaves no room for an answer: prompt and output together may have"
            f" {max_model_len}",
            param="prompt",
        )
    if min(prompt) < 0 or max(prompt) > MAX_TOKEN_ID:
        raise InvalidRequestError("the prompt holds a number that is no token", param="prompt", code="token_out_of_range")


def check_books(
    waiting: Collection[Sequence],
    running: Mapping[int, Sequence],
    live: Set[int],
    orphans: Collection[int],
    on_worker: Set[int],
    manager: KVCacheManager,
    limits: StepLimits,
) -> None:
    """Raise AssertionError, saying what is wrong, unless all books agree. orphans: ended ids that keep blocks for this step."""
    waiting_ids = {sequence.seq_id for sequence in waiting}
    assert len(waiting_ids) == len(waiting), "a sequence waits twice"
    assert not waiting_ids & running.keys(), f"running and waiting: {waiting_ids & running.keys()}"
    assert waiting_ids | running.keys() == live, "a live sequence is neither running nor waiting"
    assert running.keys() <= on_worker, "a running sequence is unknown to the worker"
    assert len(running) <= limits.max_seqs, f"{len(running)} sequences run: {limits}"
    manager.check_integrity()
    with_blocks = manager.seq_ids()
    expected = running.keys() | set(orphans)
    assert with_blocks == expected, f"sequences with blocks and running ones differ: {with_blocks ^ expected}"
    for seq_id, sequence in running.items():
        needed = blocks_for(sequence.num_computed, manager.block_size)
        assert manager.num_granted(seq_id) >= needed, f"sequence {seq_id} computed more than its blocks hold"
        assert sequence.num_computed < sequence.num_tokens, f"sequence {seq_id} runs with nothing to compute"
