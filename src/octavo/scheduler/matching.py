"""Where a waiting sequence can start from: what the cache, or its fork's parent, has computed for it."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.kvcache.manager import KVCacheManager, PrefixMatch
from octavo.scheduler.budget import wants_prompt_logprobs
from octavo.sequence import Sequence, SequenceState


def match_of(sequence: Sequence, live: Mapping[int, Sequence], manager: KVCacheManager) -> PrefixMatch | None:
    """Blocks the sequence can start from. None: it waits for its parent, which is still to compute the prompt they share.

    live: all live sequences by id. A parent that has ended or was preempted is not waited for. A sequence that wants
    prompt_logprobs must compute every prompt position that it has not reported yet: from the one before it come the logits.
    """
    if wants_prompt_logprobs(sequence):
        unreported = sequence.next_prompt_logprob < sequence.num_prompt
        return manager.match(sequence, sequence.next_prompt_logprob - 1 if unreported else sequence.num_tokens)
    parent = live.get(sequence.fork_of) if sequence.fork_of is not None else None
    if parent is None or parent.state is SequenceState.PREEMPTED or sequence.state is SequenceState.PREEMPTED:
        return manager.match(sequence, sequence.num_tokens)
    if parent.state is SequenceState.WAITING or parent.num_computed < sequence.num_prompt:
        return None
    return manager.match_parent(parent.seq_id, sequence.num_prompt)
