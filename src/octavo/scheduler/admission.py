"""Admission: what a waiting sequence can start from, and how many blocks must be there before one more may run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from octavo.config.cache import blocks_for
from octavo.config.fair_share import share_of, share_of_all
from octavo.kvcache.manager import KVCacheManager, PrefixMatch
from octavo.scheduler.estimator import Estimator
from octavo.sequence import Sequence, SequenceState

MAX_BLOCKS = 2**31


class AdmissionRule:
    """What running sequences are expected to grow to, and what one more must leave free beside that.

    guaranteed  every sequence is counted with prompt + max_tokens. Admitted sequences then never run out of blocks, so none is
                preempted for want of them; few run at a time where max_tokens is much larger than what is used.
    optimistic  every sequence is counted with the length that most answers of its class (tenant, max_tokens) had; while the
                class has no history, with the tokens it has and one more. What was wrong is repaired by preemption.

    eager       every sequence is counted with the tokens it has and one more, always: most sequences run at once, and
                preemption is how they find out that there are too many.

    Except under eager, preemption cannot go on for ever: a sequence that lost its blocks to others k times is admitted only
    when 2**k - 1 blocks are free beyond all of that, and so at most log2(num_blocks) + 1 times, after which it runs alone. With
    nothing running all are admitted.
    """

    _SAFE_SHARE = 0.75
    """Optimistic: 3 of 4 answers are no longer than they are counted with. At the median, half of them would be."""

    def __init__(self, mode: str, manager: KVCacheManager, estimator: Estimator) -> None:
        self.mode = mode
        self._manager = manager
        self._estimator = estimator

    def final_tokens(self, sequence: Sequence) -> int:
        """Tokens, prompt and output, the sequence is counted with."""
        if sequence.request.pooling is not None:
            return sequence.num_prompt
        if self.mode == "guaranteed":
            return sequence.num_prompt + sequence.request.max_tokens
        if self.mode == "eager":
            return sequence.num_tokens + 1
        if len(sequence.output_token_ids) >= sequence.expected_output:
            # Asked again only when it has outgrown the last answer: this runs for every sequence in every step.
            lengths = self._estimator.output_lengths
            sequence.expected_output = lengths.quantile(sequence, self._SAFE_SHARE) or 0
        return sequence.num_prompt + max(sequence.expected_output, len(sequence.output_token_ids) + 1)

    def outstanding(self, running: Iterable[Sequence]) -> int:
        """Blocks that running sequences still need until their ends."""
        manager = self._manager
        size = manager.block_size
        return sum(max(0, blocks_for(self.final_tokens(s), size) - manager.num_granted(s.seq_id)) for s in running)

    def has_blocks(self, sequence: Sequence, match: PrefixMatch, reserved: int) -> bool:
        """Whether a waiting sequence fits beside the `reserved` blocks that running ones will take."""
        first = min(match.num_tokens, sequence.num_tokens - 1)
        needed = self._manager.cost(match, first, self.final_tokens(sequence)) + self.headroom(sequence)
        return needed + reserved <= self._manager.num_free

    def exceeds_share(self, sequence: Sequence, match: PrefixMatch, running: Iterable[Sequence], max_seqs: int) -> bool:
        """Whether one more choice would give its request, or all requests with several choices, more than their share of the
        seats or blocks (`share_of`, `share_of_all`). The first one always may run.

        So requests with many choices leave room for one that comes while they run. The choices of one need about as much each.
        """
        request = sequence.request
        if request.sampling.n == 1:
            return False
        choices = [other for other in running if other.request.sampling.n > 1]
        num_own = sum(other.request is request for other in choices)
        if num_own == 0:
            return False
        others = [other for other in choices if other.request is not request]
        num_requests = 1 + len({other.request.request_id for other in others})
        if num_own >= share_of(max_seqs, num_requests) or len(choices) >= share_of_all(max_seqs, num_requests):
            return True
        first = min(match.num_tokens, sequence.num_tokens - 1)
        own = (num_own + 1) * self._manager.cost(match, first, self.final_tokens(sequence))
        num_blocks = self._manager.num_blocks
        return own > share_of(num_blocks, num_requests) or own + self._held(others) > share_of_all(num_blocks, num_requests)

    def _held(self, choices: Collection[Sequence]) -> int:
        """Blocks that choices of some requests will have: a prompt for each request, and an output for each choice."""
        size = self._manager.block_size
        prompts = {choice.request.request_id: blocks_for(choice.num_prompt, size) for choice in choices}
        outputs = sum(blocks_for(self.final_tokens(choice) - choice.num_prompt, size) for choice in choices)
        return sum(prompts.values()) + outputs

    def headroom(self, sequence: Sequence) -> int:
        """Blocks that must stay free beyond all needs when a waiting sequence is admitted."""
        return 0 if self.mode == "eager" else min(MAX_BLOCKS, (1 << min(sequence.num_displaced, 31)) - 1)


def match_of(sequence: Sequence, live: Mapping[int, Sequence], manager: KVCacheManager) -> PrefixMatch | None:
    """Blocks the sequence can start from. None: it waits for its parent, which is still to compute the prompt they share.

    live: all live sequences by id. A parent that has ended or was preempted is not waited for. A sequence that wants
    prompt_logprobs must compute every prompt position that it has not reported yet: from the one before it come the logits.
    """
    if sequence.reads_every_row:
        return manager.match(sequence, 0)
    if sequence.wants_prompt_logprobs:
        unreported = sequence.next_prompt_logprob < sequence.num_prompt
        return manager.match(sequence, sequence.next_prompt_logprob - 1 if unreported else sequence.num_tokens)
    parent = live.get(sequence.fork_of) if sequence.fork_of is not None else None
    if parent is None or parent.state is SequenceState.PREEMPTED or sequence.state is SequenceState.PREEMPTED:
        return manager.match(sequence, sequence.num_tokens)
    if parent.state is SequenceState.WAITING or parent.num_computed < sequence.num_prompt:
        return None
    return manager.match_parent(parent.seq_id, sequence.num_prompt)
