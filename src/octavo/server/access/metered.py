"""MeteredEngine: the engine as one API key sees it. Its limits hold for whatever a route asks of the engine."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

import msgspec

from octavo.engine.frontend.ledger import ShedReason
from octavo.engine.frontend.outputs import RequestOutput
from octavo.engine.frontend.pooling_outputs import PoolingRequestOutput
from octavo.errors import BusyError, ContextLengthError, InvalidRequestError, PermissionDeniedError, RateLimitError
from octavo.pooling_params import PoolingParams
from octavo.request import RequestOptions
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.server.access.key_file import ApiKey
from octavo.server.access.usage import Reservation, UsageStore
from octavo.server.service.engine_face import Engine
from octavo.server.service.service import Service

QUOTA_STOP_REASON = "token_quota"
"""stop_reason, with finish_reason "length", of an answer that ended because the tokens of its key did."""

log = logging.getLogger("octavo.server")


def service_for(service: Service, key: ApiKey, usage: UsageStore) -> Service:
    """The service as the owner of a key sees it. Raises PermissionDeniedError when none of its models is served here."""
    names = tuple(name for name in service.model_names if not key.limits.models or name in key.limits.models)
    if not names:
        raise PermissionDeniedError("this API key may use none of the models of this server")
    engine = cast(Engine, MeteredEngine(service.engine, key, usage))
    return replace(service, engine=engine, model_names=names)


class MeteredEngine:
    """Has the face of an Engine. What is not written here is the engine's own: it generates nothing."""

    def __init__(self, engine: Engine, key: ApiKey, usage: UsageStore) -> None:
        self._engine = engine
        self._key = key
        self._usage = usage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus output in tokens: of the model, or of the key if that is less."""
        return min(self._engine.max_model_len, self._key.limits.max_context_tokens or self._engine.max_model_len)

    async def generate(
        self,
        prompt: list[int],
        sampling_params: SamplingParams,
        request_id: str,
        options: RequestOptions,
        *,
        output_kind: RequestOutputKind,
    ) -> AsyncGenerator[RequestOutput, None]:
        """As the engine's. An answer whose tokens run out ends with stop_reason QUOTA_STOP_REASON.

        Raises besides: RateLimitError, and InvalidRequestError for what the key may not ask.
        """
        self._check_priority(options)
        n, asked = sampling_params.n, self._max_tokens(len(prompt), sampling_params)
        # Later steps of one request bring its prompt again, which has been counted.
        cost = 0 if options.is_continuation else len(prompt)
        reservation = self._reserve(cost + n * max(1, sampling_params.min_tokens), cost + n * asked)
        granted = (reservation.tokens - cost) // n
        params = msgspec.structs.replace(sampling_params, max_tokens=granted)
        meter = _Meter(cost)
        try:
            stream = self._engine.generate(prompt, params, request_id, options, output_kind=output_kind)
            async with aclosing(stream):
                async for output in stream:
                    meter.count(output)
                    if granted < asked:
                        _mark_ends(output)
                    yield output
        finally:
            meter.look(self._engine, request_id)
            self._settle(reservation, meter.used)

    async def encode(
        self, prompt: list[int], pooling_params: PoolingParams, request_id: str, options: RequestOptions
    ) -> AsyncGenerator[PoolingRequestOutput, None]:
        """As the engine's; what is delivered is charged. Raises besides: RateLimitError."""
        self._check_priority(options)
        if len(prompt) > self.max_model_len:
            found = f"the prompt has {len(prompt)} tokens"
            raise ContextLengthError.of_prompt(found, self.max_model_len, "prompt", "truncate_prompt_tokens")
        reservation = self._reserve(len(prompt), len(prompt))
        used = 0
        try:
            async with aclosing(self._engine.encode(prompt, pooling_params, request_id, options)) as stream:
                async for output in stream:
                    used = len(prompt)
                    yield output
        finally:
            self._settle(reservation, used)

    def _check_priority(self, options: RequestOptions) -> None:
        least = self._key.limits.min_priority
        if least is not None and options.priority < least:
            raise InvalidRequestError(
                f"priority is {options.priority}; this API key may ask for {least} or more (lower is served first)",
                param="priority",
            )

    def _max_tokens(self, num_prompt_tokens: int, params: SamplingParams) -> int:
        """Most tokens of each choice: what is asked for if the key may, else what it may at most."""
        room = self.max_model_len - num_prompt_tokens
        if room < 1:
            raise ContextLengthError.of(f"the prompt has {num_prompt_tokens} tokens", self.max_model_len, "prompt")
        most = min(room, self._key.limits.max_tokens or room)
        if params.max_tokens is None:
            return most
        if params.max_tokens > most:
            raise InvalidRequestError(
                f"max_tokens is {params.max_tokens}; with a prompt of {num_prompt_tokens} tokens this API key may ask for "
                f"{most} at most",
                param="max_tokens",
            )
        return params.max_tokens

    def _reserve(self, least: int, most: int) -> Reservation:
        try:
            return self._usage.reserve(self._key.name, self._key.limits, least, most)
        except RateLimitError:
            self._engine.ledger.shed(self._key.tenant, ShedReason.KEY_TOKENS)
            raise

    def _settle(self, reservation: Reservation, used: int) -> None:
        try:
            self._usage.settle(reservation, used)
        except BusyError as error:
            log.error("key %s: %s; its reserved tokens stay charged", self._key.name, error.message)


class _Meter:
    """Counts the tokens of one request: its prompt from the first delivery on, and what was generated."""

    def __init__(self, prompt_cost: int) -> None:
        self.used = 0
        self._prompt_cost = prompt_cost
        self._generated = 0

    def count(self, output: RequestOutput) -> None:
        self._generated += sum(len(choice.token_ids) for choice in output.outputs)
        generated = self._generated if output.metrics is None else output.metrics.num_generated_tokens
        self.used = self._prompt_cost + generated

    def look(self, engine: Engine, request_id: str) -> None:
        """Take from the ledger what a client that has left was not handed any more."""
        record = engine.ledger.find(request_id)
        if record is not None and record.first_token_s is not None:
            self.used = self._prompt_cost + record.num_generated_tokens


def _mark_ends(output: RequestOutput) -> None:
    for choice in output.outputs:
        if choice.finish_reason == "length" and choice.stop_reason is None:
            choice.stop_reason = QUOTA_STOP_REASON
