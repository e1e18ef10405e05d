"""SequenceUpdate: what one settled step means for one sequence."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.kvcache.prefix_cache import MAX_TOKEN_ID
from octavo.scheduler.budget import wants_prompt_logprobs
from octavo.sequence import FinishReason, Sequence
from octavo.step import PromptLogprobs, SampledTokens, ScheduledSequence, TokenLogprobs


@dataclass(slots=True)
class SequenceUpdate:
    """News of one sequence. A sequence gets exactly one update with a finish_reason, unless `Scheduler.abort` ended it.

    new_token_ids      tokens sampled in this step, in order; a stop token that ended the sequence is among them
    logprobs           one entry per new token, if asked for
    prompt_logprobs    entries for the next prompt positions; every position is reported once, also after preemption
    num_cached_prompt  prompt tokens that were not computed at its first admission
    error              why it failed, when finish_reason is ERROR
    """

    seq_id: int
    request_id: str
    choice: int
    num_cached_prompt: int
    new_token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: PromptLogprobs | None = None
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    error: str | None = None


def update_of(sequence: Sequence) -> SequenceUpdate:
    """An update without news yet."""
    return SequenceUpdate(sequence.seq_id, sequence.request.request_id, sequence.choice, sequence.num_cached_prompt or 0)


def end_of(sequence: Sequence, reason: FinishReason, error: str | None) -> SequenceUpdate:
    """The update of a sequence that ended without a last token."""
    update = update_of(sequence)
    update.finish_reason, update.error = reason, error
    return update


def settle_share(
    sequence: Sequence,
    share: ScheduledSequence,
    sampled: SampledTokens | None,
    prompt_logprobs: PromptLogprobs | None,
    max_model_len: int,
) -> SequenceUpdate | None:
    """Take a share's result into its sequence. Returns the news; None if there are none. With a finish_reason it is at its end.

    Raises AssertionError for a result that cannot be.
    """
    sequence.num_computed = share.num_computed + share.num_new - len(share.draft_token_ids)
    sequence.is_decoding = share.needs_sample
    reported = report_prompt_logprobs(sequence, prompt_logprobs)
    if not share.needs_sample and reported is None:
        return None
    update = update_of(sequence)
    update.prompt_logprobs = reported
    if share.needs_sample:
        assert sampled is not None and sampled.token_ids, "the worker returned no token for it"
        num_accepted = _num_accepted(share, sampled) if share.draft_token_ids or sampled.num_accepted else 0
        new_token_ids = update.new_token_ids
        for token_id in sampled.token_ids:
            assert 0 <= token_id <= MAX_TOKEN_ID, f"the worker returned token id {token_id}"
            new_token_ids.append(token_id)
            update.finish_reason = append_token(sequence, token_id, max_model_len)
            if update.finish_reason is not None:
                break  # what was sampled or forced behind the end is no part of the answer
        update.stop_token_id = sequence.stop_token_id
        if sampled.logprobs:
            update.logprobs = sampled.logprobs[: len(new_token_ids)]
        if num_accepted:
            # The last new token is not computed yet, except where an accepted draft was the end.
            sequence.num_computed += min(num_accepted, len(new_token_ids))
    return update


def _num_accepted(share: ScheduledSequence, sampled: SampledTokens) -> int:
    """Drafts of the share that were accepted. Raises AssertionError for tokens that cannot follow from them."""
    token_ids, num_accepted = sampled.token_ids, sampled.num_accepted
    is_prefix = token_ids[:num_accepted] == share.draft_token_ids[:num_accepted]
    assert 0 <= num_accepted < len(token_ids) and is_prefix, f"{num_accepted} of {share.draft_token_ids}: {token_ids}"
    return num_accepted


def append_token(sequence: Sequence, token_id: int, max_model_len: int) -> FinishReason | None:
    """Append a sampled token to the output; the reason if the sequence ends with it.

    A stop token wins over a length limit reached by the same token. Up to min_tokens outputs the worker masks stop tokens, so
    none can end the sequence there, except where a grammar allows nothing else.
    """
    request, output = sequence.request, sequence.output_token_ids
    output.append(token_id)
    if token_id in sequence.stop_token_ids and (request.grammar or len(output) > request.sampling.min_tokens):
        sequence.stop_token_id = token_id
        return FinishReason.STOP
    if len(output) >= request.max_tokens or sequence.num_tokens >= max_model_len:
        return FinishReason.LENGTH
    return None


def report_prompt_logprobs(sequence: Sequence, computed: PromptLogprobs | None) -> PromptLogprobs | None:
    """The part of `computed` that has not been reported; None if there is none.

    Logits of position p give the entry of position p + 1. Prompt positions computed again after preemption come back from the
    worker a second time and are dropped here. Raises AssertionError when the worker left a gap, or the prompt is computed and
    some are missing.
    """
    if not wants_prompt_logprobs(sequence):
        return None
    reported = None
    if computed is not None:
        num_known = sequence.next_prompt_logprob - computed.first_position
        assert num_known >= 0, f"prompt logprobs begin at {computed.first_position}, not {sequence.next_prompt_logprob}"
        entries = computed.entries[num_known:]
        if entries:
            reported = PromptLogprobs(computed.seq_id, sequence.next_prompt_logprob, entries)
            sequence.next_prompt_logprob += len(entries)
    missing = sequence.num_computed >= sequence.num_prompt > sequence.next_prompt_logprob
    assert not missing, f"the worker returned no prompt logprobs from position {sequence.next_prompt_logprob} on"
    return reported
