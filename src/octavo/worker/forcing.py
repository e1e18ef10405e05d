"""append_forced: tokens that a grammar leaves no choice about stand behind the sampled one, without a forward pass each."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.step import SampledTokens
from octavo.worker.batch import Batch, ResidentSequence, Segment

MAX_FORCED = 32
"""Tokens that one step appends to one sequence. While they are looked for, all sequences of the step wait. The next step
goes on where this one stopped."""


def append_forced(batch: Batch, segments: Sequence[Segment], sampled: Sequence[SampledTokens]) -> None:
    """Add to the tokens of each sequence those that must follow.

    Each of them is the one token that the mask at its place would leave, so that the answer is the same without this.
    """
    by_id = {segment.state.seq_id: segment.state for segment in segments if _may_force(segment)}
    for tokens in sampled if by_id else ():
        state = by_id.get(tokens.seq_id)
        if state is not None and tokens.token_ids[-1] not in state.masked_ids:
            tokens.token_ids += _forced(batch, state, tokens.token_ids)


def _may_force(segment: Segment) -> bool:
    """Logprobs come of a forward pass; what else is forbidden is the sampler's to say."""
    state = segment.state
    sampling = state.sampling
    is_free = sampling.logprobs is None and not sampling.bad_words_ids and sampling.allowed_token_ids is None
    return segment.needs_sample and state.matcher is not None and is_free


def _forced(batch: Batch, state: ResidentSequence, token_ids: Sequence[int]) -> list[int]:
    """What must stand behind token_ids, which are new."""
    matcher = state.matcher
    assert matcher is not None
    room = min(MAX_FORCED, batch.max_model_len - state.num_tokens - len(token_ids))
    forced: list[int] = []
    try:
        matcher.accept(token_ids)
        while len(forced) < room:
            token_id = matcher.forced_token()
            if token_id is None:
                break
            forced.append(token_id)
            if token_id in state.masked_ids:
                break
            matcher.accept([token_id])
    except ValueError:
        pass  # the next mask fails in the same way, and says so
    return forced
