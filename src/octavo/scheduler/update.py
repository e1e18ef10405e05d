"""SequenceUpdate: what one settled step means for one sequence."""

from __future__ import annotations

import msgspec

from octavo.kvcache.prefix_cache import MAX_TOKEN_ID
from octavo.sequence import FinishReason, Sequence
from octavo.step import PooledVector, PromptLogprobs, SampledTokens, ScheduledSequence, TokenLogprobs


class SequenceUpdate(msgspec.Struct):
    """News of one sequence. A sequence gets exactly one update with a finish_reason, unless `Scheduler.abort` ended it.

    new_token_ids      tokens sampled in this step, in order; a stop token that ended the sequence is among them
    logprobs           one entry per new token, if asked for
    prompt_logprobs    entries for the next prompt positions; every position is reported once, also after preemption
    num_cached_prompt  prompt tokens that were not computed at its first admission
    num_drafted        guesses that the step verified; num_accepted: those of them that are among new_token_ids
    error              why it failed, when finish_reason is ERROR
    pooled             what its hidden states come to (see PooledVector), when it ends as one that is pooled
    """

    seq_id: int
    request_id: str
    choice: int
    num_cached_prompt: int
    new_token_ids: list[int] = []
    logprobs: list[TokenLogprobs] = []
    prompt_logprobs: PromptLogprobs | None = None
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    error: str | None = None
    pooled: bytes = b""
    num_drafted: int = 0
    num_accepted: int = 0


def end_of(sequence: Sequence, reason: FinishReason, error: str | None) -> SequenceUpdate:
    """The update of a sequence that ended without a last token."""
    return _update_of(sequence, [], [], None, reason, error)


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
    drafts, output = share.draft_token_ids, sequence.output_token_ids
    sequence.num_computed = share.num_computed + share.num_new - len(drafts)
    sequence.is_decoding = share.needs_sample
    reported = report_prompt_logprobs(sequence, prompt_logprobs) if sequence.wants_prompt_logprobs else None
    if not share.needs_sample:
        return None if reported is None else _update_of(sequence, [], [], reported)
    assert sampled is not None and sampled.token_ids, "the worker returned no token for it"
    num_accepted = _num_accepted(share, sampled) if drafts or sampled.num_accepted else 0
    num_before = len(output)
    reason = append_tokens(sequence, sampled.token_ids, max_model_len)
    token_ids, logprobs = output[num_before:], sampled.logprobs
    if num_accepted:
        # The last new token is not computed yet, except where an accepted draft was the end.
        sequence.num_computed += min(num_accepted, len(token_ids))
    if len(logprobs) > len(token_ids):
        logprobs = logprobs[: len(token_ids)]
    return _update_of(sequence, token_ids, logprobs, reported, reason)


def settle_pooled(sequence: Sequence, share: ScheduledSequence, pooled: PooledVector | None) -> SequenceUpdate | None:
    """The same for a sequence that is pooled: it ends with its prompt. Raises AssertionError for a result that cannot be."""
    sequence.num_computed = share.num_computed + share.num_new
    if sequence.num_computed < sequence.num_prompt:
        return None
    assert pooled is not None and pooled.data, "the worker returned no embedding for it"
    update = _update_of(sequence, [], [], None, FinishReason.STOP)
    update.pooled = pooled.data
    return update


def _update_of(
    sequence: Sequence,
    token_ids: list[int],
    logprobs: list[TokenLogprobs],
    prompt_logprobs: PromptLogprobs | None,
    reason: FinishReason | None = None,
    error: str | None = None,
) -> SequenceUpdate:
    return SequenceUpdate(
        sequence.seq_id,
        sequence.request.request_id,
        sequence.choice,
        sequence.num_cached_prompt or 0,
        token_ids,
        logprobs,
        prompt_logprobs,
        reason,
        sequence.stop_token_id,
        error,
    )


def _num_accepted(share: ScheduledSequence, sampled: SampledTokens) -> int:
    """Drafts of the share that were accepted. Raises AssertionError for tokens that cannot follow from them."""
    token_ids, num_accepted = sampled.token_ids, sampled.num_accepted
    is_prefix = token_ids[:num_accepted] == share.draft_token_ids[:num_accepted]
    assert 0 <= num_accepted < len(token_ids) and is_prefix, f"{num_accepted} of {share.draft_token_ids}: {token_ids}"
    return num_accepted


def append_tokens(sequence: Sequence, token_ids: list[int], max_model_len: int) -> FinishReason | None:
    """Append new tokens to the output, up to one that ends the sequence; the reason if one does.

    What was sampled or forced behind the end is no part of the answer. A stop token wins over a length limit reached by the
    same token. Up to min_tokens outputs the worker masks stop tokens, so none can end the sequence there,
    except where nothing else is allowed.

    Raises AssertionError for an id that no vocabulary has.
    """
    output, request = sequence.output_token_ids, sequence.request
    is_bound = bool(request.grammar) or request.sampling.allowed_token_ids is not None
    for token_id in token_ids:
        assert 0 <= token_id <= MAX_TOKEN_ID, f"the worker returned token id {token_id}"
        output.append(token_id)
        num_output = len(output)
        if token_id in sequence.stop_token_ids and (is_bound or num_output > request.sampling.min_tokens):
            sequence.stop_token_id = token_id
            return FinishReason.STOP
        if num_output >= request.max_tokens or sequence.num_prompt + num_output >= max_model_len:
            return FinishReason.LENGTH
    return None


def report_prompt_logprobs(sequence: Sequence, computed: PromptLogprobs | None) -> PromptLogprobs | None:
    """For a sequence that wants them: the part of `computed` that has not been reported; None if there is none.

    Logits of position p give the entry of position p + 1. Prompt positions computed again after preemption come back from the
    worker a second time and are dropped here. Raises AssertionError when the worker left a gap, or the prompt is computed and
    some are missing.
    """
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
