"""A fake engine with AsyncLLMEngine's face, for server tests: real tokenizer, scripted answers, no model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry
from tests.configs import resolved_config
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from octavo.config.cache import GIB
from octavo.config.changes import Changes, apply_changes, settings_in_force
from octavo.config.model import ModelConfig, RopeConfig
from octavo.engine.frontend.input import InputProcessor
from octavo.engine.frontend.logprobs import PositionLogprobs
from octavo.engine.frontend.outputs import CompletionOutput, RequestOutput
from octavo.engine.frontend.places import Places
from octavo.engine.frontend.pooling_outputs import PoolingOutput, PoolingRequestOutput
from octavo.engine.wire.messages import ReconfigureReport
from octavo.errors import EngineDeadError, OctavoError
from octavo.grammar.forms import Forms
from octavo.kvcache.manager import KVCacheManager
from octavo.kvcache.report import MemoryReport
from octavo.kvcache.survey import memory_report
from octavo.pooling_params import PoolingParams
from octavo.request import NO_OPTIONS, Request, RequestOptions
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.structured_outputs import StructuredOutputsParams
from octavo.text.chat_template import ChatTemplate
from octavo.text.emitter import TextEmitter
from octavo.text.tokenizer import Tokenizer, TokenizerSpec

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer(*more: str) -> Tokenizer:
    """One token per byte (ids 0..255 in byte-level order), then <|bos|>, <|im_start|>, <|im_end|>, and more control tokens."""
    alphabet = sorted(ByteLevel.alphabet())
    backend = Backend(BPE({char: index for index, char in enumerate(alphabet)}, []))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = ByteLevelDecoder()
    backend.add_special_tokens([AddedToken(text, special=True) for text in ("<|bos|>", "<|im_start|>", "<|im_end|>", *more)])
    spec = TokenizerSpec(
        source="fake",
        bos_token_id=256,
        eos_token_ids=(258,),
        special_tokens={"bos_token": "<|bos|>", "eos_token": "<|im_end|>"},
        chat_templates={"default": TEMPLATE},
    )
    return Tokenizer(backend, spec)


ANSWER = 'Grüße from a fake engine: 日本語, emoji 👩‍👩‍👧 and "quotes"\nand a second line.'


class FakeEngine:
    """Answers every prompt with ANSWER, a token per delivery.

    release        deliveries after the first wait for it; set by default
    on_request     called for each request when it arrives
    fail_first     raised before the first delivery; fail_after_tokens: RuntimeError once that many tokens were delivered
    running        ids of requests whose iterator is open; aborted: those closed before they finished
    pooled         (prompt, pooling params) of every request for an embedding
    requests       (prompt, sampling params, priority, cache salt) of every request, in order; tenants, timeouts_s beside it
    """

    def __init__(self) -> None:
        self.tokenizer = byte_tokenizer()
        self.chat_template = ChatTemplate.for_tokenizer(self.tokenizer)
        self.model_config = ModelConfig(
            architecture="FakeForCausalLM",
            vocab_size=260,
            hidden_size=8,
            intermediate_size=8,
            num_layers=1,
            num_heads=1,
            num_kv_heads=1,
            head_dim=8,
            max_position=512,
            norm_eps=1e-5,
            rope=RopeConfig(rotary_dim=8),
            query_scale=1.0,
        )
        self.max_model_len = 512
        self.generation_defaults: dict[str, Any] = {}
        self.resolved_config = resolved_config()
        self.places = Places()
        self.metrics = CollectorRegistry()
        self.weights_version = "0123456789abcdef"
        self.release = asyncio.Event()
        self.release.set()
        self.answer = ANSWER
        self.fail_first: OctavoError | None = None
        self.on_request: Callable[[], None] = lambda: None
        self.fail_after_tokens: int | None = None
        self.finish_with: str | None = None
        self.is_dead = False
        self.dead_error: EngineDeadError | None = None
        self.was_shut_down = False
        self.running: set[str] = set()
        self.aborted: list[str] = []
        self.requests: list[tuple[list[int], SamplingParams, int, str]] = []
        self.pooled: list[tuple[list[int], PoolingParams]] = []
        self.tenants: list[str] = []
        self.timeouts_s: list[float | None] = []
        self.forms = Forms()
        self._changed = asyncio.Condition()

    async def check_form(self, form: StructuredOutputsParams) -> None:
        await asyncio.to_thread(self.forms.grammar, form)

    async def generate(
        self,
        prompt: list[int],
        sampling_params: SamplingParams,
        request_id: str,
        options: RequestOptions = NO_OPTIONS,
        *,
        output_kind: RequestOutputKind = RequestOutputKind.DELTA,
    ) -> AsyncGenerator[RequestOutput, None]:
        self.requests.append((prompt, sampling_params, options.priority, options.cache_salt))
        self.tenants.append(options.tenant)
        self.timeouts_s.append(options.timeout_s)
        self.on_request()
        if self.fail_first is not None:
            raise self.fail_first
        policy = self.resolved_config.scheduler.scheduler_policy
        processor = InputProcessor(
            self.tokenizer, self.model_config, self.max_model_len, scheduler_policy=policy, forms=self.forms
        )
        request = processor.prepare(prompt, sampling_params, request_id, options, arrival_s=0.0).request
        self.running.add(request_id)
        await self._tell()
        finished = False
        try:
            whole: RequestOutput | None = None
            async for output in self._deliver(request):
                finished = output.finished
                if output_kind is RequestOutputKind.DELTA:
                    yield output
                elif whole is None:
                    whole = output
                else:
                    whole.append(output)
            if whole is not None:
                yield whole
        finally:
            self.running.discard(request_id)
            if not finished:
                self.aborted.append(request_id)
            await self._tell()

    async def encode(
        self, prompt: list[int], pooling_params: PoolingParams, request_id: str, options: RequestOptions = NO_OPTIONS
    ) -> AsyncGenerator[PoolingRequestOutput, None]:
        """The vector counts the tokens by their ids modulo 8, and is then formed as asked for. It waits for `release`."""
        self.pooled.append((prompt, pooling_params))
        self.tenants.append(options.tenant)
        policy = self.resolved_config.scheduler.scheduler_policy
        processor = InputProcessor(self.tokenizer, self.model_config, self.max_model_len, scheduler_policy=policy)
        prepared = processor.prepare(prompt, pooling_params, request_id, options, arrival_s=0.0)
        counts = np.bincount(np.array(prompt) % 8, minlength=8).astype(np.float32)
        assert prepared.embedding is not None
        self.running.add(request_id)
        await self._tell()
        finished = False
        try:
            await self.release.wait()
            finished = True
            yield PoolingRequestOutput(request_id, PoolingOutput(prepared.embedding.apply(counts)), prompt)
        finally:
            self.running.discard(request_id)
            if not finished:
                self.aborted.append(request_id)
            await self._tell()

    async def _deliver(self, request: Request) -> AsyncIterator[RequestOutput]:
        params, prompt = request.sampling, request.prompt_token_ids
        script = self.tokenizer.encode(self.answer, add_special_tokens=False) + [258]
        emitters = [
            TextEmitter(
                self.tokenizer,
                stop=params.stop,
                include_stop_str_in_output=params.include_stop_str_in_output,
                skip_special_tokens=params.skip_special_tokens,
                shown_token_ids=params.shown_token_ids,
            )
            for _ in range(params.n)
        ]
        prompt_logprobs = None if params.prompt_logprobs is None else self._prompt_logprobs(prompt, params.prompt_logprobs)
        open_choices = set(range(params.n))
        for position, token_id in enumerate(script):
            if self.fail_after_tokens == position:
                raise RuntimeError("the fake engine broke")
            if position:
                await self.release.wait()
            await asyncio.sleep(0)
            outputs = []
            for index in sorted(open_choices):
                emitter = emitters[index]
                text = emitter.push(token_id)
                finish: str | None = None
                stop: str | None = None
                if emitter.stopped is not None:
                    finish, stop = "stop", emitter.stopped
                elif token_id == 258:
                    finish = "stop"
                elif position + 1 == request.max_tokens:
                    finish = "length"
                if self.finish_with is not None and position == 2:
                    finish = self.finish_with
                if finish is not None:
                    text += emitter.finish()
                    open_choices.discard(index)
                logprobs = None if params.logprobs is None else [self._logprobs(token_id, params.logprobs)]
                outputs.append(CompletionOutput(index, text, [token_id], None, logprobs, finish, stop))
            yield RequestOutput(
                request.request_id,
                None,
                prompt,
                outputs,
                prompt_logprobs if position == 0 else None,
                finished=not open_choices,
                num_cached_tokens=len(prompt) // 2,
            )
            if not open_choices:
                return

    def _logprobs(self, token_id: int, num_top: int) -> PositionLogprobs:
        top = [(token_id + step) % 256 for step in range(num_top)]
        values = [-0.5 - step for step in range(num_top)]
        if num_top > 1:
            values[-1] = float("-inf")
        return PositionLogprobs(token_id, -0.5, 1, top, values, self.tokenizer.token_text)

    def _prompt_logprobs(self, prompt: list[int], num_top: int) -> list[PositionLogprobs | None]:
        return [None, *(self._logprobs(token_id, num_top) for token_id in prompt[1:])]

    def deliver_one(self) -> None:
        """Let each running request deliver once more, and no more than that."""
        self.release.set()
        self.release.clear()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def wait_until_running(self, count: int) -> None:
        """Until exactly count requests have an open iterator."""
        async with self._changed:
            await asyncio.wait_for(self._changed.wait_for(lambda: len(self.running) == count), 10)

    async def reconfigure(self, **settings: int | float | str) -> ReconfigureReport:
        config = apply_changes(self.resolved_config, Changes.of(settings), free_bytes=2 * GIB)
        old, new = settings_in_force(self.resolved_config), settings_in_force(config)
        self.resolved_config = config
        return ReconfigureReport(config, {name: (old[name], new[name]) for name in new if old[name] != new[name]}, 1, 2, 0.5)

    async def memory_stats(self) -> MemoryReport:
        return memory_report(KVCacheManager(4, 16), [], 1024)

    async def check_health(self) -> None:
        if self.dead_error is not None:
            raise self.dead_error
        if self.is_dead:
            raise EngineDeadError("the engine core is dead")

    async def drain(self, timeout_s: float) -> None:
        self.finish_with = "abort"
        self.release.set()

    async def shutdown(self) -> None:
        self.was_shut_down = True
        self.forms.close()
