"""Generation: the prompts of one request running in the engine, as one stream of deltas or one whole result for each."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from octavo.engine.frontend.ledger import RequestRecord
from octavo.engine.frontend.outputs import CompletionOutput, RequestOutput
from octavo.engine.frontend.places import Body
from octavo.errors import EngineDeadError, OverloadedError, request_failure
from octavo.request import RequestOptions
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.server.service.engine_face import Engine

OutputT = TypeVar("OutputT")

QUEUE_SIZE = 64
"""Outputs of a several-prompt request waiting for the writer; beyond it the engine's own queue holds (and merges) them."""

RETRY_S = 0.5
"""After which a later prompt of a request under way that found the queue full tries again."""


@dataclass(slots=True)
class EncodedPrompt:
    """One prompt. text is as the client sent it, or None when it sent token ids or messages."""

    text: str | None
    token_ids: list[int]


@dataclass(slots=True)
class Usage:
    """prompt_tokens counts each prompt once, whatever n is; cached_tokens is the part of them found in the prefix cache.

    accepted_prediction_tokens, rejected_prediction_tokens  guesses that became tokens of the answer, and those that did not;
                      None for a request that predicts nothing
    reasoning_tokens  the part of completion_tokens before the answer, of choices that have ended; None where it is not known
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int | None = None
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


@dataclass(slots=True, kw_only=True)
class Generation:
    """What the handlers hand to the engine, and what it costs.

    keep               so many of the choices are the answer, those of the highest mean logprob; None: all
    counts_completion  False for an echo of the prompt alone, where the engine's one token is not part of the answer
    record             the ledger's entry of the prompt that delivered last: its times
    """

    request_id: str
    prompts: list[EncodedPrompt]
    params: SamplingParams
    options: RequestOptions
    keep: int | None = None
    counts_completion: bool = True
    usage: Usage = field(default_factory=Usage)
    record: RequestRecord | None = None

    @property
    def n(self) -> int:
        """Choices of each prompt in the answer."""
        return self.params.n if self.keep is None else self.keep

    async def run(
        self, engine: Engine, output_kind: RequestOutputKind = RequestOutputKind.DELTA
    ) -> AsyncGenerator[tuple[int, RequestOutput], None]:
        """Yield (prompt index, output) as they come and count them into usage. Closing it aborts what still runs.

        Raises: EngineDeadError when the engine itself aborted a request (shutdown), what `request_failure` makes of one that
        failed there.
        """
        self.usage.prompt_tokens = sum(len(prompt.token_ids) for prompt in self.prompts)
        cached = [0] * len(self.prompts)
        start_s = time.monotonic()
        if len(self.prompts) == 1:  # no tasks, no layer more than it takes: this runs for every token
            async with aclosing(self._start(engine, 0, output_kind, start_s)) as stream:
                async for output in stream:
                    self._count(output, 0, cached)
                    yield 0, output
            return
        starts = [partial(self._start, engine, index, output_kind, start_s) for index in range(len(self.prompts))]
        with engine.places.body(self.params.n, engine.resolved_config.scheduler.max_num_seqs) as body:
            async with aclosing(merged(starts, body)) as outputs:
                async for index, output in outputs:
                    self._count(output, index, cached)
                    yield index, output

    async def collect(self, engine: Engine) -> list[RequestOutput]:
        """Run to the end: one result per prompt, with all its choices in order."""
        results: dict[int, RequestOutput] = {}
        async with aclosing(self.run(engine, RequestOutputKind.FINAL_ONLY)) as outputs:
            async for index, output in outputs:
                results[index] = output
        ordered = [results[index] for index in range(len(self.prompts))]
        if self.keep is not None:
            for result in ordered:
                result.outputs = _best(result.outputs, self.keep)
        return ordered

    def _start(
        self, engine: Engine, index: int, output_kind: RequestOutputKind, start_s: float
    ) -> AsyncGenerator[RequestOutput, None]:
        """Begin prompt `index`; what has gone by since start_s is taken off the time that the request has."""
        request_id = self.request_id if len(self.prompts) == 1 else f"{self.request_id}-{index}"
        options = self.options
        if options.timeout_s is not None and index:
            options = replace(options, timeout_s=max(1e-3, options.timeout_s - (time.monotonic() - start_s)))
        return engine.generate(self.prompts[index].token_ids, self.params, request_id, options, output_kind=output_kind)

    def _count(self, output: RequestOutput, index: int, cached: list[int]) -> None:
        """Count a delivery of prompt `index` into usage. Raises what `run` does for one that the engine ended."""
        self.usage.cached_tokens += output.num_cached_tokens - cached[index]
        cached[index] = output.num_cached_tokens
        self.record = record = output.metrics
        if self.options.prediction and record is not None:
            self.usage.accepted_prediction_tokens = record.num_accepted_tokens
            self.usage.rejected_prediction_tokens = record.num_drafted_tokens - record.num_accepted_tokens
        for choice in output.outputs:
            if self.counts_completion:
                self.usage.completion_tokens += len(choice.token_ids)
            if choice.finish_reason == "abort":
                raise EngineDeadError("the server stopped this request before it was complete", code="request_aborted")
            if choice.finish_reason == "error":
                raise request_failure(output.error or "the engine could not complete this request")


def _best(choices: list[CompletionOutput], count: int) -> list[CompletionOutput]:
    """The choices of the highest logprob per token, the best first, numbered anew; of equals the earlier one."""

    def mean_logprob(choice: CompletionOutput) -> float:
        return (choice.cumulative_logprob or 0.0) / max(1, len(choice.token_ids))

    best = sorted(choices, key=mean_logprob, reverse=True)[:count]
    for index, choice in enumerate(best):
        choice.index = index
    return best


def new_request_id(prefix: str, separator: str = "-") -> str:
    """A fresh id; the engine's request id is the answer's, too, so a log line and an answer can be matched."""
    return f"{prefix}{separator}{secrets.token_hex(16)}"


async def merged(
    starts: Sequence[Callable[[], AsyncGenerator[OutputT, None]]], body: Body
) -> AsyncGenerator[tuple[int, OutputT], None]:
    """The deliveries of all streams in the order they come, as many running as have a place. The first error ends them all."""
    queue: asyncio.Queue[tuple[int, OutputT | Exception | None]] = asyncio.Queue(QUEUE_SIZE)

    async def pump(index: int) -> None:
        try:
            async with body.place() as waited:
                while True:
                    try:
                        async with aclosing(starts[index]()) as stream:
                            async for output in stream:
                                await queue.put((index, output))
                        break
                    except OverloadedError:
                        if not waited:
                            raise
                        await asyncio.sleep(RETRY_S)  # the request is under way; a part of it waits until there is room
        except Exception as error:
            await queue.put((index, error))
        else:
            await queue.put((index, None))

    tasks = [asyncio.ensure_future(pump(index)) for index in range(len(starts))]
    try:
        running = len(tasks)
        while running:
            index, item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                running -= 1
            else:
                yield index, item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
