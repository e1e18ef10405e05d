"""/v1/completions: continue a prompt."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from octavo.engine.frontend.outputs import CompletionOutput
from octavo.errors import InvalidRequestError
from octavo.sampling_params import MAX_LOGPROBS
from octavo.server.context import ServerContext, context_of, tenant_of
from octavo.server.json_body import read_json_object
from octavo.server.openai.body import UNSUPPORTED_FIELDS, parse_body
from octavo.server.openai.chunks import ChunkWriter, choice_json, encode
from octavo.server.openai.generation import Answer, Generation, collect, new_answer_id
from octavo.server.openai.logprobs import CompletionLogprobs, prompt_logprobs_json
from octavo.server.openai.prompts import Prompt, output_budget, read_prompts
from octavo.server.openai.sampling_fields import Count, SamplingFields, check_common, request_options, sampling_params
from octavo.server.openai.usage import Usage
from octavo.server.sse import DONE, EventStream, JsonAnswer
from octavo.step import TokenLogprobs
from octavo.text.tokenizer import Tokenizer

DEFAULT_MAX_TOKENS = 16

_UNSUPPORTED = {**UNSUPPORTED_FIELDS, "best_of": (1,), "suffix": ("",), "response_format": ({"type": "text"},)}


class CompletionBody(SamplingFields):
    """The body. prompt: a string, a list of strings, token ids, or a list of lists of token ids."""

    prompt: Any
    max_tokens: Count | None = DEFAULT_MAX_TOKENS
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    add_special_tokens: bool | None = None


async def create_completion(request: Request) -> Response:
    """POST /v1/completions."""
    context = context_of(request)
    body = parse_body(CompletionBody, await read_json_object(request), _UNSUPPORTED)
    job = _Job(body, context, await _generation(body, context, tenant_of(request, body.user)))
    if body.stream:
        return EventStream(job.stream())
    return JsonAnswer(job.answer)


async def _generation(body: CompletionBody, context: ServerContext, tenant: str) -> Generation:
    """Everything that can be wrong with the body raises here, before any part of it runs."""
    context.check_model(body.model)
    check_common(body, context)
    if body.max_tokens == 0 and not body.echo:
        raise InvalidRequestError(
            "max_tokens is 0; it must be at least 1, or set echo to get the prompt back", param="max_tokens"
        )
    prompts = await read_prompts(body.prompt, context, add_special_tokens=body.add_special_tokens is not False)
    # With echo the prompt is part of the text, so logprobs cover it, too.
    prompt_logprobs = body.logprobs if body.echo and body.logprobs is not None else body.prompt_logprobs
    if body.max_tokens == 0:
        body.min_tokens = None
    params = [
        sampling_params(
            body,
            context,
            max_tokens=output_budget(
                len(prompt.token_ids),
                None if body.max_tokens is None else max(body.max_tokens, 1),
                context.max_model_len,
                "max_tokens",
            ),
            logprobs=body.logprobs,
            prompt_logprobs=prompt_logprobs,
        )
        for prompt in prompts
    ]
    return Generation(
        answer_id=new_answer_id("cmpl"),
        prompts=prompts,
        params=params,
        options=request_options(body, tenant),
    )


class _Job:
    """One completion request on its way to an answer, streamed or whole."""

    def __init__(self, body: CompletionBody, context: ServerContext, generation: Generation) -> None:
        self._body = body
        self._context = context
        self._generation = generation
        self._usage = Usage(counts_completion=body.max_tokens != 0)
        self._prompt_only = body.max_tokens == 0
        self._head: dict[str, Any] = {
            "id": generation.answer_id,
            "object": "text_completion",
            "created": int(time.time()),
            "model": context.model_name,
            "system_fingerprint": context.system_fingerprint,
        }

    async def answer(self) -> bytes:
        """The whole answer as JSON."""
        answer = await collect(self._generation, self._context, self._usage)
        choices = [
            self._choice(prompt_index, choice_index, answer)
            for prompt_index in range(len(self._generation.prompts))
            for choice_index in range(self._generation.n)
        ]
        return encode({**self._head, "choices": choices, "usage": self._usage.as_json()})

    def _choice(self, prompt_index: int, choice_index: int, answer: Answer) -> dict[str, Any]:
        choice = answer.choices[prompt_index][choice_index]
        prompt = self._generation.prompts[prompt_index]
        prompt_logprobs = answer.prompt_logprobs[prompt_index]
        entries: list[TokenLogprobs | None] = [] if self._prompt_only else list(choice.logprobs)
        text = "" if self._prompt_only else choice.text
        if self._body.echo:
            text = echoed_text(prompt, self._context.engine.tokenizer) + text
            entries = [*(prompt_logprobs or ()), *entries]
        json: dict[str, Any] = {
            "index": prompt_index * self._generation.n + choice_index,
            "text": text,
            "logprobs": self._logprobs().format(entries, prompt.token_ids) if self._body.logprobs is not None else None,
            "finish_reason": "length" if self._prompt_only else choice.finish_reason,
            "stop_reason": None if self._prompt_only else choice.stop_reason,
        }
        if self._body.prompt_logprobs is not None and prompt_logprobs is not None:
            json["prompt_logprobs"] = prompt_logprobs_json(prompt_logprobs, self._context.engine.tokenizer)
        return json

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """SSE events."""
        options = self._body.stream_options
        include_usage = options is not None and bool(options.include_usage)
        writer = ChunkWriter(
            self._head,
            include_usage=include_usage,
            continuous_usage=options is not None and bool(options.continuous_usage_stats),
        )
        n = self._generation.n
        choices = [
            _StreamedChoice(self._body, self._context, prompt_index * n + choice_index, prompt)
            for prompt_index, prompt in enumerate(self._generation.prompts)
            for choice_index in range(n)
        ]
        prompt_logprobs: dict[int, Sequence[TokenLogprobs | None]] = {}
        async with aclosing(self._generation.run(self._context, self._usage)) as outputs:
            async for prompt_index, output in outputs:
                if output.prompt_logprobs is not None:
                    prompt_logprobs[prompt_index] = output.prompt_logprobs
                for delta in output.outputs:
                    json = choices[prompt_index * n + delta.index].chunk(delta, prompt_logprobs.get(prompt_index))
                    if json is not None:
                        yield writer.chunk(json, self._usage)
        if include_usage:
            yield writer.usage_chunk(self._usage)
        yield DONE

    def _logprobs(self) -> CompletionLogprobs:
        return CompletionLogprobs(self._context.engine.tokenizer, self._body.logprobs or 0)


class _StreamedChoice:
    """The stream of one choice: what the next chunk shows of a delta."""

    def __init__(self, body: CompletionBody, context: ServerContext, index: int, prompt: Prompt) -> None:
        self._index = index
        self._prompt_only = body.max_tokens == 0
        self._echo = bool(body.echo)
        self._prompt = prompt
        self._tokenizer = context.engine.tokenizer
        self._logprobs = None if body.logprobs is None else CompletionLogprobs(self._tokenizer, body.logprobs)
        self._started = False

    def chunk(self, delta: CompletionOutput, prompt_logprobs: Sequence[TokenLogprobs | None] | None) -> bytes | None:
        """The choice as JSON, or None while there is nothing to show (an unfinished character, a possible stop string)."""
        text = "" if self._prompt_only else delta.text
        entries: list[TokenLogprobs | None] = [] if self._prompt_only else list(delta.logprobs or ())
        if self._echo and not self._started:
            text = echoed_text(self._prompt, self._tokenizer) + text
            entries = [*(prompt_logprobs or ()), *entries]
        self._started = True
        if not text and not entries and delta.finish_reason is None:
            return None
        logprobs = b"null" if self._logprobs is None else encode(self._logprobs.format(entries, self._prompt.token_ids))
        finish, stop = delta.finish_reason, delta.stop_reason
        if self._prompt_only and finish is not None:
            finish, stop = "length", None
        return choice_json(self._index, b'"text":', encode(text), logprobs, encode(finish), encode(stop))


def echoed_text(prompt: Prompt, tokenizer: Tokenizer) -> str:
    """The prompt as the client sees it: its own text, or its token ids decoded."""
    return prompt.text if prompt.text is not None else tokenizer.decode(prompt.token_ids, skip_special_tokens=False)
