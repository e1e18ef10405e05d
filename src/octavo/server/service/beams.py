"""BeamGeneration: a beam search over the engine for each prompt of one request; it is collected as a Generation is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

from octavo.engine.frontend.beam_search import BeamSearch, BeamSearchParams
from octavo.engine.frontend.logprobs import PositionLogprobs
from octavo.engine.frontend.output_processor import TIMEOUT_STOP_REASON
from octavo.engine.frontend.outputs import CompletionOutput, RequestOutput
from octavo.errors import OverloadedError
from octavo.request import RequestOptions
from octavo.sampling_params import RequestOutputKind
from octavo.server.service.engine_face import Engine
from octavo.server.service.generation import RETRY_S, EncodedPrompt, Generation, Usage
from octavo.server.service.service import Service


@dataclass(slots=True, kw_only=True)
class BeamGeneration:
    """As Generation. Each token of all beams is one Generation of one-token prompts, of which the prefix cache has all but one.

    hidden_token_ids  control tokens that are left out of the text
    eos_token_ids     the model's ends of sequence
    """

    request_id: str
    prompts: list[EncodedPrompt]
    params: BeamSearchParams
    options: RequestOptions
    eos_token_ids: Sequence[int]
    hidden_token_ids: frozenset[int] = frozenset()
    usage: Usage = field(default_factory=Usage)

    @classmethod
    def instead_of(cls, generation: Generation, beams: BeamSearchParams, service: Service) -> BeamGeneration:
        """Of the generation's own params counts which control tokens are shown, and nothing else. Both have one usage."""
        sampling = generation.params
        hidden = service.engine.tokenizer.special_token_ids - set(sampling.shown_token_ids)
        return cls(
            request_id=generation.request_id,
            prompts=generation.prompts,
            params=beams,
            options=generation.options,
            eos_token_ids=service.eos_token_ids,
            hidden_token_ids=hidden if sampling.skip_special_tokens else frozenset(),
            usage=generation.usage,
        )

    @property
    def n(self) -> int:
        return self.params.beam_width

    async def run(
        self, engine: Engine, output_kind: RequestOutputKind = RequestOutputKind.FINAL_ONLY
    ) -> AsyncGenerator[tuple[int, RequestOutput], None]:
        """Yield (prompt index, result) at the end, whatever the kind: which beam is the best shows only there."""
        for index, result in enumerate(await self.collect(engine)):
            yield index, result

    async def collect(self, engine: Engine) -> list[RequestOutput]:
        """One result per prompt, with its beams from the best to the worst. Raises as Generation.collect does."""
        searches = [
            BeamSearch(prompt.token_ids, self.params, self.eos_token_ids, engine.max_model_len) for prompt in self.prompts
        ]
        start_s, step, timed_out = time.monotonic(), 0, False
        while steps := [(search, search.prompts) for search in searches if search.prompts]:
            together = [EncodedPrompt(None, token_ids) for _, prompts in steps for token_ids in prompts]
            entries = await self._step(engine, together, step, start_s)
            timed_out = timed_out or None in entries
            for search, prompts in steps:
                search.advance([entries.pop(0) for _ in prompts])
            step += 1
        self.usage.prompt_tokens = sum(len(prompt.token_ids) for prompt in self.prompts)
        return [self._result(engine, search, timed_out) for search in searches]

    async def _step(
        self, engine: Engine, prompts: list[EncodedPrompt], step: int, start_s: float
    ) -> list[PositionLogprobs | None]:
        """What may follow each of the prompts; None where the time of the request is over."""
        while True:
            options = replace(self.options, is_continuation=step > 0)
            if options.timeout_s is not None:
                options = replace(options, timeout_s=max(1e-3, options.timeout_s - (time.monotonic() - start_s)))
            generation = Generation(
                request_id=f"{self.request_id}-{step}", prompts=prompts, params=self.params.sampling, options=options
            )
            try:
                results = await generation.collect(engine)
            except OverloadedError:
                if step == 0:
                    raise
                await asyncio.sleep(RETRY_S)  # the request is under way; its next token waits until there is room
                continue
            if step == 0:
                self.usage.cached_tokens = generation.usage.cached_tokens
            return [result.next_logprobs() for result in results]

    def _result(self, engine: Engine, search: BeamSearch, timed_out: bool) -> RequestOutput:
        outputs = []
        for index, beam in enumerate(search.best()):
            text = beam.text(
                engine.tokenizer, shows_end=self.params.include_stop_str_in_output, hidden=self.hidden_token_ids
            )
            finish_reason = "stop" if beam.has_ended else "length"
            stop_reason = TIMEOUT_STOP_REASON if timed_out and not beam.has_ended else None
            outputs.append(
                CompletionOutput(index, text, beam.token_ids, beam.cum_logprob, beam.logprobs, finish_reason, stop_reason)
            )
            self.usage.completion_tokens += len(beam.token_ids)
        return RequestOutput(self.request_id, None, search.prompt_token_ids, outputs, finished=True)
