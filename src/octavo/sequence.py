"""Sequence: one choice of one request on its way through the engine: its tokens, its progress, its end."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from octavo.request import Request


class SequenceState(enum.Enum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


class FinishReason(enum.Enum):
    """Why a sequence ended. OpenAI's API knows stop and length; `OutputProcessor` says how the others are reported.

    TIMEOUT  the request's own deadline passed; SHED: it waited longer than the queue timeout
    """

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    TIMEOUT = "timeout"
    SHED = "shed"


@dataclass(slots=True)
class Sequence:
    """Live state of one choice. Prompt and output stay distinct for ever, also when recomputed after preemption.

    seq_id             unique in the engine, never reused
    request            what was asked for; all its choices share it
    choice             index of the completion within its request; key of the noise together with the request's seed
    fork_of            seq_id of choice 0 of the same request (n > 1): its prompt blocks are shared instead of computed again
    stop_token_ids     ids that end the sequence: the request's, as a set
    reads_every_row    every prompt position must be computed for it, whatever is cached; `whole`: in one step
    in_flight          it has a share of a step that is not settled: nothing of it changes but its end until then
    is_decoding        its last share sampled, and it has not been preempted since
    num_computed       tokens whose keys and values are in the cache; reset by preemption
    num_cached_prompt  prompt tokens found in the prefix cache (or shared with fork_of) when first admitted; None until then
    num_charged        prompt tokens that its tenant has been charged for, or that were cached (policy fair)
    num_displaced      preemptions for want of blocks; the others made room for a better one, or came of a failed step
    next_prompt_logprob  prompt position whose logprobs are to be reported next (those of earlier ones are out); the first has
                         none
    adapter_id         content identity (not the name) of the adapter its keys and values depend on; "" is the bare model
    first_scheduled_s  time of its first step, on the clock of the request's arrival_s; None while it has not been in one
    expected_s         estimated seconds from its first step to its end; while it waits, set under policies that ask for it only
    expected_output    output tokens that admission counts it with; 0: not known
    """

    seq_id: int
    request: Request
    choice: int = 0
    fork_of: int | None = None
    adapter_id: str = ""
    output_token_ids: list[int] = field(default_factory=list)
    state: SequenceState = SequenceState.WAITING
    in_flight: bool = False
    is_decoding: bool = False
    num_computed: int = 0
    num_cached_prompt: int | None = None
    num_charged: int = 0
    num_preemptions: int = 0
    num_displaced: int = 0
    next_prompt_logprob: int = 1
    first_scheduled_s: float | None = None
    expected_s: float = 0.0
    expected_output: int = 0
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    """The id that ended it, when finish_reason is STOP by a token."""
    num_prompt: int = field(init=False)
    wants_prompt_logprobs: bool = field(init=False)
    stop_token_ids: frozenset[int] = field(init=False)
    reads_every_row: bool = field(init=False)
    whole: bool = field(init=False)

    def __post_init__(self) -> None:
        self.num_prompt = len(self.request.prompt_token_ids)
        self.wants_prompt_logprobs = self.request.sampling.prompt_logprobs is not None
        self.stop_token_ids = frozenset(self.request.stop_token_ids)
        pooling = self.request.pooling
        self.reads_every_row = pooling is not None and pooling.reads_every_row
        self.whole = pooling is not None and pooling.whole

    @property
    def num_tokens(self) -> int:
        return self.num_prompt + len(self.output_token_ids)

    def token_ids(self, first: int, last: int) -> list[int]:
        """Tokens at positions first..last (end exclusive) of prompt + output."""
        num_prompt, prompt = self.num_prompt, self.request.prompt_token_ids
        if last <= num_prompt:
            return prompt[first:last]
        if first >= num_prompt:
            return self.output_token_ids[first - num_prompt : last - num_prompt]
        return prompt[first:] + self.output_token_ids[: last - num_prompt]
