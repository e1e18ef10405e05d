"""Generation: one HTTP request's prompts running in the engine, as one stream of deltas or one collected answer."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from octavo.engine.frontend.outputs import CompletionOutput, RequestOutput
from octavo.errors import EngineDeadError, RequestFailedError
from octavo.request import RequestOptions
from octavo.sampling_params import SamplingParams
from octavo.server.context import ServerContext
from octavo.server.openai.prompts import Prompt
from octavo.server.openai.usage import Usage
from octavo.step import TokenLogprobs

QUEUE_SIZE = 64
"""Outputs of a several-prompt request waiting for the writer; beyond it the engine's own queue holds (and merges) them."""


@dataclass(slots=True, kw_only=True)
class Generation:
    """What the handlers hand to the engine. params[i] belongs to prompts[i]; they differ in max_tokens only."""

    answer_id: str
    prompts: list[Prompt]
    params: list[SamplingParams]
    options: RequestOptions

    @property
    def n(self) -> int:
        return self.params[0].n

    async def run(self, context: ServerContext, usage: Usage) -> AsyncGenerator[tuple[int, RequestOutput], None]:
        """Yield (prompt index, output) as they come and count them into usage. Closing it aborts what still runs.

        Raises: EngineDeadError when the engine itself aborted a request (shutdown), RequestFailedError when it failed there.
        """
        usage.prompt_tokens = sum(len(prompt.token_ids) for prompt in self.prompts)
        cached = [0] * len(self.prompts)
        streams = [self._start(context, index) for index in range(len(self.prompts))]
        if len(streams) == 1:
            async with aclosing(streams[0]) as stream:
                async for output in stream:
                    _count(output, 0, cached, usage)
                    yield 0, output
            return
        async with aclosing(_merged(streams)) as source:
            async for index, output in source:
                _count(output, index, cached, usage)
                yield index, output

    def _start(self, context: ServerContext, index: int) -> AsyncGenerator[RequestOutput, None]:
        request_id = self.answer_id if len(self.prompts) == 1 else f"{self.answer_id}-{index}"
        return context.engine.generate(self.prompts[index].token_ids, self.params[index], request_id, self.options)


@dataclass(slots=True)
class Collected:
    """All of one choice: its deltas joined."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    def add(self, delta: CompletionOutput) -> None:
        self.texts.append(delta.text)
        self.token_ids.extend(delta.token_ids)
        if delta.logprobs:
            self.logprobs.extend(delta.logprobs)
        if delta.finish_reason is not None:
            self.finish_reason, self.stop_reason = delta.finish_reason, delta.stop_reason

    @property
    def text(self) -> str:
        return "".join(self.texts)


@dataclass(slots=True)
class Answer:
    """A finished generation: choices[prompt index][choice index], and the prompts' logprobs where asked for."""

    choices: list[list[Collected]]
    prompt_logprobs: list[Sequence[TokenLogprobs | None] | None]


async def collect(generation: Generation, context: ServerContext, usage: Usage) -> Answer:
    """Run to the end."""
    num_prompts = len(generation.prompts)
    answer = Answer([[Collected() for _ in range(generation.n)] for _ in range(num_prompts)], [None] * num_prompts)
    async with aclosing(generation.run(context, usage)) as outputs:
        async for index, output in outputs:
            if output.prompt_logprobs is not None:
                answer.prompt_logprobs[index] = output.prompt_logprobs
            for delta in output.outputs:
                answer.choices[index][delta.index].add(delta)
    return answer


def new_answer_id(prefix: str) -> str:
    """A fresh id; it is the engine's request id, too, so a log line and an answer can be matched."""
    return f"{prefix}-{secrets.token_hex(16)}"


def _count(output: RequestOutput, index: int, cached: list[int], usage: Usage) -> None:
    """Count a delivery of prompt `index` into usage. Raises what `Generation.run` does for one that the engine ended."""
    if output.num_cached_tokens != cached[index]:
        usage.cached_tokens += output.num_cached_tokens - cached[index]
        cached[index] = output.num_cached_tokens
    for choice in output.outputs:
        usage.add_completion(len(choice.token_ids))
        if choice.finish_reason == "abort":
            raise EngineDeadError("the server stopped this request before it was complete", code="request_aborted")
        if choice.finish_reason == "error":
            raise RequestFailedError(output.error or "the engine could not complete this request")


async def _merged(streams: Sequence[AsyncGenerator[RequestOutput, None]]) -> AsyncGenerator[tuple[int, RequestOutput], None]:
    """All streams at once, in the order outputs arrive. The first error ends them all."""
    queue: asyncio.Queue[tuple[int, RequestOutput | Exception | None]] = asyncio.Queue(QUEUE_SIZE)

    async def pump(index: int, stream: AsyncGenerator[RequestOutput, None]) -> None:
        try:
            async with aclosing(stream):
                async for output in stream:
                    await queue.put((index, output))
        except Exception as error:
            await queue.put((index, error))
        else:
            await queue.put((index, None))

    tasks = [asyncio.ensure_future(pump(index, stream)) for index, stream in enumerate(streams)]
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
