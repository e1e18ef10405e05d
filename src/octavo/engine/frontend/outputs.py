"""RequestOutput, CompletionOutput: what a request's owner receives. Names and fields follow vLLM."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from octavo.engine.frontend.ledger import RequestRecord
from octavo.engine.frontend.logprobs import PositionLogprobs


@dataclass(slots=True)
class CompletionOutput:
    """One choice.

    token_ids           a token that stopped the choice is among them; its text is not in `text` unless the request asked for it
    cumulative_logprob  sum over all tokens so far (also in deltas); None unless logprobs were asked for
    logprobs            one entry per token id; None unless asked for
    finish_reason       "stop", "length", "abort", "error"; None while it runs
    stop_reason         the stop string or the request's stop token id that ended it; None for the model's end-of-sequence;
                        "timeout", with finish_reason "length", when the request's own deadline did
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[PositionLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    def finished(self) -> bool:
        return self.finish_reason is not None

    def append(self, later: CompletionOutput) -> None:
        """Join a later delta of the same choice to this one."""
        self.text += later.text
        self.token_ids = self.token_ids + later.token_ids
        self.cumulative_logprob = later.cumulative_logprob
        if self.logprobs is not None and later.logprobs is not None:
            self.logprobs = self.logprobs + later.logprobs
        self.finish_reason, self.stop_reason = later.finish_reason, later.stop_reason


@dataclass(slots=True)
class RequestOutput:
    """One delivery of a request.

    prompt             the prompt's text; None when token ids were given
    prompt_logprobs    one entry per prompt token, None for the first; as deltas they come once, with the first tokens
    outputs            the choices (deltas: only those with news)
    num_cached_tokens  prompt tokens that were found in the prefix cache
    metrics            the request's entry in the ledger: times on the monotonic clock and counts
    error              why the request failed, when a choice has finish_reason "error"
    pooled             of a request with PoolingParams, when it ends well: its embedding, float32 [dimensions]
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput] = field(default_factory=list)
    prompt_logprobs: list[PositionLogprobs | None] | None = None
    finished: bool = False
    num_cached_tokens: int = 0
    metrics: RequestRecord | None = None
    error: str | None = None
    pooled: NDArray[np.float32] | None = None

    def next_logprobs(self) -> PositionLogprobs | None:
        """Of the first token of the first choice; None where there is none."""
        logprobs = self.outputs[0].logprobs
        return logprobs[0] if logprobs else None

    def append(self, later: RequestOutput) -> None:
        """Join a later delta delivery of the same request to this one."""
        own = {output.index: output for output in self.outputs}
        for output in later.outputs:
            if output.index in own:
                own[output.index].append(output)
            else:
                self.outputs.append(output)
        self.prompt_logprobs = later.prompt_logprobs if later.prompt_logprobs is not None else self.prompt_logprobs
        self.finished, self.num_cached_tokens, self.error = later.finished, later.num_cached_tokens, later.error
