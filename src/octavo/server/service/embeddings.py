"""Embeddings: the texts of one request as vectors. They share the engine's seats with others, as prompts of completions do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from octavo.engine.frontend.pooling_outputs import PoolingRequestOutput
from octavo.errors import ContextLengthError
from octavo.pooling_params import PoolingParams
from octavo.request import RequestOptions
from octavo.server.service.engine_face import Engine
from octavo.server.service.generation import merged
from octavo.server.service.service import Service
from octavo.text.truncation import truncated


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings:
    """What the handlers hand to the engine.

    prompts  token ids, each at least one, in the order of the answer
    """

    request_id: str
    prompts: Sequence[list[int]]
    params: PoolingParams
    options: RequestOptions

    @property
    def num_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(map(len, self.prompts))

    async def collect(self, engine: Engine) -> list[PoolingRequestOutput]:
        """Run to the end, in the order of the prompts. Cancelling it aborts what still runs.

        Raises: EngineDeadError when the engine itself aborted a request (shutdown), RequestFailedError when it failed there.
        """
        starts = [partial(self._start, engine, index) for index in range(len(self.prompts))]
        results: dict[int, PoolingRequestOutput] = {}
        with engine.places.body(1, engine.resolved_config.scheduler.max_num_seqs) as body:
            async with aclosing(merged(starts, body)) as outputs:
                async for index, output in outputs:
                    results[index] = output
        return [results[index] for index in range(len(self.prompts))]

    def _start(self, engine: Engine, index: int) -> AsyncGenerator[PoolingRequestOutput, None]:
        request_id = self.request_id if len(self.prompts) == 1 else f"{self.request_id}-{index}"
        return engine.encode(self.prompts[index], self.params, request_id, self.options)


async def encode_texts(
    service: Service, texts: Sequence[str], param: str, max_kept: int | None, *, add_special_tokens: bool = True
) -> list[list[int]]:
    """Token ids of texts. In a thread, for many texts take long, and the streams of others must go on.

    param     the field they stand in
    max_kept  see PoolingParams.truncate_prompt_tokens
    Raises: ContextLengthError for a text that is clearly too long.
    """
    tokenizer, longest = service.engine.tokenizer, service.max_model_len

    def encode() -> list[list[int]]:
        encoded: list[list[int]] = []
        for text in texts:
            if max_kept is None:
                tokenizer.require_fits(text, longest, param)
            token_ids = tokenizer.encode(text, add_special_tokens=add_special_tokens)
            suffix = tokenizer.spec.suffix_ids if add_special_tokens else ()
            encoded.append(truncated(token_ids, _limit(max_kept, longest), suffix))
        return encoded

    return await asyncio.to_thread(encode)


def kept_ids(service: Service, token_ids: list[int], max_kept: int | None) -> list[int]:
    """The same for a prompt that comes as token ids."""
    return truncated(token_ids, _limit(max_kept, service.max_model_len), ())


def require_fits(service: Service, token_ids: Sequence[int], param: str, cut: str) -> None:
    """Raise ContextLengthError unless the context holds the prompt; it needs no room for an answer. cut: the field that has a
    long prompt cut."""
    if len(token_ids) > service.max_model_len:
        raise ContextLengthError.of_prompt(f"{param} has {len(token_ids)} tokens", service.max_model_len, param, cut)


def _limit(max_kept: int | None, longest: int) -> int:
    if max_kept is None:
        return 2**31
    return longest if max_kept == -1 else max_kept
