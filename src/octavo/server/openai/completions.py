"""/v1/completions: continue a prompt."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.engine.frontend.outputs import CompletionOutput, RequestOutput
from octavo.errors import InvalidRequestError
from octavo.sampling_params import MAX_N
from octavo.server.body import Int32, NumLogprobs, parse_body
from octavo.server.context import context_of, service_of, tenant_of
from octavo.server.described import Prompts
from octavo.server.json_body import read_json_object
from octavo.server.openai.beam_fields import beam_params
from octavo.server.openai.chunks import ChunkWriter, answer_head, choice_json, encode, usage_json
from octavo.server.openai.logprobs import CompletionLogprobs, prompt_logprobs_json
from octavo.server.openai.prompts import read_prompts
from octavo.server.openai.sampling_fields import (
    SamplingFields,
    check_common,
    checked_form,
    request_options,
    sampling_values,
    truncation,
)
from octavo.server.service.beams import BeamGeneration
from octavo.server.service.generation import EncodedPrompt, Generation, new_request_id
from octavo.server.service.service import Service
from octavo.server.sse import DONE, EventStream, JsonAnswer
from octavo.step import TokenLogprobs
from octavo.text.tokenizer import Tokenizer

DEFAULT_MAX_TOKENS = 16


class CompletionBody(SamplingFields):
    """The body. prompt: a string, a list of strings, token ids, or a list of lists of token ids.

    best_of  so many answers are made, of which the n with the highest logprob per token are sent
    suffix   the text behind the answer, for models that fill in the middle
    """

    prompt: Prompts
    max_tokens: Int32 | None = DEFAULT_MAX_TOKENS
    echo: bool | None = None
    logprobs: NumLogprobs | None = None
    suffix: str | None = None
    add_special_tokens: bool | None = None


async def create_completion(request: Request) -> Response:
    """POST /v1/completions."""
    service, config = service_of(request), context_of(request).config
    body, generation = await read_completion(request)
    if body.return_tokens_as_token_ids is None:
        body.return_tokens_as_token_ids = config.return_tokens_as_token_ids
    job = _Job(body, service, generation)
    if isinstance(generation, Generation) and body.stream:
        return EventStream(job.stream(generation, force_usage=config.enable_force_include_usage))
    return JsonAnswer(job.answer)


async def read_completion(request: Request) -> tuple[CompletionBody, Generation | BeamGeneration]:
    """The body of a request and the generation that it asks for, which has not begun."""
    body = parse_body(CompletionBody, await read_json_object(request))
    return body, await _generation(body, service_of(request), tenant_of(request, body.user))


async def _generation(body: CompletionBody, service: Service, tenant: str) -> Generation | BeamGeneration:
    """Everything that can be wrong with the body raises here, before any part of it runs."""
    service.check_model(body.model)
    service.require_text_model()
    check_common(body)
    keep = _check_best_of(body)
    if body.max_tokens is not None and body.max_tokens < (0 if body.echo else 1):
        raise InvalidRequestError(
            f"max_tokens is {body.max_tokens}; it must be at least 1, or 0 with echo to get the prompt back", param="max_tokens"
        )
    _check_combinations(body)
    beams = beam_params(body, body.max_tokens, body.logprobs)
    prompts = await read_prompts(
        body.prompt,
        service,
        add_special_tokens=body.add_special_tokens is not False,
        truncation=truncation(body, service, body.max_tokens),
        suffix=body.suffix,
    )
    form = await checked_form(body, service)
    for prompt in prompts:
        service.require_room(len(prompt.token_ids), "prompt")
    generation = Generation(
        request_id=new_request_id("cmpl"),
        prompts=prompts,
        params=service.sampling_params(_values(body, keep), form),
        options=request_options(body, tenant),
        keep=keep,
        counts_completion=body.max_tokens != 0,
    )
    return generation if beams is None else BeamGeneration.instead_of(generation, beams, service)


def _values(body: CompletionBody, keep: int | None) -> dict[str, Any]:
    """Fields of SamplingParams, but for the form. With echo the prompt is part of the text, so logprobs cover it, too."""
    values = sampling_values(body)
    if body.echo and body.logprobs is not None:
        values["prompt_logprobs"] = max(body.logprobs, body.prompt_logprobs or 0)
    if body.max_tokens == 0:
        values["min_tokens"] = 0
    values["max_tokens"] = None if body.max_tokens is None else max(body.max_tokens, 1)
    if keep is not None:
        values["n"] = body.best_of
        values.setdefault("logprobs", 0)
    return values


def _check_best_of(body: CompletionBody) -> int | None:
    """How many of the best_of answers are kept; None: all."""
    n = 1 if body.n is None else body.n
    if body.best_of is None or body.best_of == n:
        return None
    if not 1 <= n <= body.best_of <= MAX_N:
        raise InvalidRequestError(
            f"best_of is {body.best_of}; it must be at least n, which is {n}, and at most {MAX_N}", param="best_of"
        )
    if body.stream:
        raise InvalidRequestError(
            f"best_of is {body.best_of}, more than n; which answers are the best shows at the end: leave out stream or best_of",
            param="best_of",
        )
    if body.use_beam_search:
        raise InvalidRequestError("best_of does not go with use_beam_search; n is the number of beams", param="best_of")
    return n


def _check_combinations(body: CompletionBody) -> None:
    if body.suffix is not None:
        for name in ("echo", "truncate_prompt_tokens"):
            if getattr(body, name):
                raise InvalidRequestError(f"{name} does not go with suffix; leave one of them out", param=name)
    if body.use_beam_search and body.echo and (body.logprobs is not None or body.max_tokens == 0):
        raise InvalidRequestError(
            "use_beam_search has no logprobs of the prompt; leave out echo, or logprobs, or use_beam_search", param="echo"
        )


class _Job:
    """One completion request on its way to an answer, streamed or whole."""

    def __init__(self, body: CompletionBody, service: Service, generation: Generation | BeamGeneration) -> None:
        self._body = body
        self._engine = service.engine
        self._generation = generation
        self._prompt_only = body.max_tokens == 0
        self._head = answer_head("text_completion", generation.request_id, service)

    async def answer(self) -> bytes:
        """The whole answer as JSON."""
        results = await self._generation.collect(self._engine)
        choices = [
            self._choice(prompt_index, choice, result)
            for prompt_index, result in enumerate(results)
            for choice in result.outputs
        ]
        return encode({**self._head, "choices": choices, "usage": usage_json(self._generation.usage)})

    def _choice(self, prompt_index: int, choice: CompletionOutput, result: RequestOutput) -> dict[str, Any]:
        body, prompt = self._body, self._generation.prompts[prompt_index]
        prompt_logprobs = result.prompt_logprobs
        entries: list[TokenLogprobs | None] = [] if self._prompt_only else list(choice.logprobs or ())
        text = "" if self._prompt_only else choice.text
        if body.echo:
            text = echoed_text(prompt, self._engine.tokenizer) + text
            entries = [*(prompt_logprobs or ()), *entries]
        json: dict[str, Any] = {
            "index": prompt_index * self._generation.n + choice.index,
            "text": text,
            "logprobs": self._logprobs().format(entries, prompt.token_ids) if body.logprobs is not None else None,
            "finish_reason": "length" if self._prompt_only else choice.finish_reason,
            "stop_reason": None if self._prompt_only else choice.stop_reason,
        }
        if body.prompt_logprobs is not None and prompt_logprobs is not None:
            json["prompt_logprobs"] = prompt_logprobs_json(prompt_logprobs, self._engine.tokenizer, body.prompt_logprobs)
        if body.return_token_ids:
            json["prompt_token_ids"] = prompt.token_ids
            json["token_ids"] = [] if self._prompt_only else choice.token_ids
        return json

    async def stream(self, generation: Generation, *, force_usage: bool) -> AsyncGenerator[bytes, None]:
        """SSE events."""
        writer = ChunkWriter(self._head, self._body.stream_options, force_usage=force_usage)
        n, usage = generation.n, generation.usage
        choices = [
            _StreamedChoice(self._body, self._engine.tokenizer, prompt_index * n + choice_index, prompt)
            for prompt_index, prompt in enumerate(generation.prompts)
            for choice_index in range(n)
        ]
        prompt_logprobs: dict[int, Sequence[TokenLogprobs | None]] = {}
        async with aclosing(generation.run(self._engine)) as outputs:
            async for prompt_index, output in outputs:
                if output.prompt_logprobs is not None:
                    prompt_logprobs[prompt_index] = output.prompt_logprobs
                for delta in output.outputs:
                    json = choices[prompt_index * n + delta.index].chunk(delta, prompt_logprobs.get(prompt_index))
                    if json is not None:
                        yield writer.chunk(json, usage)
        if writer.include_usage:
            yield writer.usage_chunk(usage)
        yield DONE

    def _logprobs(self) -> CompletionLogprobs:
        return CompletionLogprobs(self._engine.tokenizer, self._body.logprobs or 0, bool(self._body.return_tokens_as_token_ids))


class _StreamedChoice:
    """The stream of one choice: what the next chunk shows of a delta."""

    def __init__(self, body: CompletionBody, tokenizer: Tokenizer, index: int, prompt: EncodedPrompt) -> None:
        self._index = index
        self._prompt_only = body.max_tokens == 0
        self._echo = bool(body.echo)
        self._shows_ids = bool(body.return_token_ids)
        self._prompt = prompt
        self._tokenizer = tokenizer
        as_ids = bool(body.return_tokens_as_token_ids)
        self._logprobs = None if body.logprobs is None else CompletionLogprobs(tokenizer, body.logprobs, as_ids)
        self._started = False

    def chunk(self, delta: CompletionOutput, prompt_logprobs: Sequence[TokenLogprobs | None] | None) -> bytes | None:
        """The choice as JSON, or None while there is nothing to show (an unfinished character, a possible stop string)."""
        text = "" if self._prompt_only else delta.text
        entries: list[TokenLogprobs | None] = [] if self._prompt_only else list(delta.logprobs or ())
        if self._echo and not self._started:
            text = echoed_text(self._prompt, self._tokenizer) + text
            entries = [*(prompt_logprobs or ()), *entries]
        more = self._token_ids(delta) if self._shows_ids else b""
        self._started = True
        if not text and not entries and not more and delta.finish_reason is None:
            return None
        logprobs = b"null" if self._logprobs is None else encode(self._logprobs.format(entries, self._prompt.token_ids))
        finish, stop = delta.finish_reason, delta.stop_reason
        if self._prompt_only and finish is not None:
            finish, stop = "length", None
        return choice_json(self._index, b'"text":', encode(text), logprobs, encode(finish), encode(stop), more)

    def _token_ids(self, delta: CompletionOutput) -> bytes:
        """The token ids of the delta as further keys of its choice; the first chunk has the prompt's, too."""
        own = b',"token_ids":' + encode([] if self._prompt_only else delta.token_ids)
        return own if self._started else b',"prompt_token_ids":' + encode(self._prompt.token_ids) + own


def echoed_text(prompt: EncodedPrompt, tokenizer: Tokenizer) -> str:
    """The prompt as the client sees it: its own text, or its token ids decoded."""
    return prompt.text if prompt.text is not None else tokenizer.decode(prompt.token_ids, skip_special_tokens=False)
