"""AsyncLLMEngine: the asynchronous face. Text is handled here; token ids are computed in a core process of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, replace

from prometheus_client import CollectorRegistry

from octavo.config.changes import Changes
from octavo.config.engine import EngineConfig
from octavo.config.model import ModelConfig
from octavo.config.resolve import check_options
from octavo.config.resolved import ResolvedConfig
from octavo.engine.args import AsyncEngineArgs, EngineArgs
from octavo.engine.frontend.child import CORE_COMMAND
from octavo.engine.frontend.core_tokens import CoreTokens
from octavo.engine.frontend.input import InputProcessor, Prepared, seeds
from octavo.engine.frontend.ledger import Ledger
from octavo.engine.frontend.metrics import Metrics
from octavo.engine.frontend.output_processor import OutputProcessor
from octavo.engine.frontend.outputs import RequestOutput
from octavo.engine.frontend.overload import check_queue, retry_after_s
from octavo.engine.frontend.places import Places
from octavo.engine.frontend.pooling_outputs import PoolingRequestOutput
from octavo.engine.frontend.prompt import Prompt
from octavo.engine.frontend.served_model import ServedModel, load_served_model, locate_model
from octavo.engine.frontend.stats_log import RequestLog, StatsLog
from octavo.engine.frontend.stream import RequestStream
from octavo.engine.frontend.supervisor import Patience, Supervisor
from octavo.engine.wire.messages import (
    AbortChoices,
    AddRequest,
    CoreReady,
    MemoryRead,
    ReadMemory,
    Reconfigure,
    Reconfigured,
    ReconfigureReport,
    SetTokens,
    StepOutputs,
)
from octavo.errors import EngineDeadError, OctavoError, OverloadedError
from octavo.grammar.forms import MAX_PROCESSES
from octavo.grammar.tokens import TokenTable
from octavo.kvcache.report import MemoryReport
from octavo.log import get_logger
from octavo.pooling_params import PoolingParams
from octavo.request import NO_OPTIONS, RequestOptions, new_request_id
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.sequence import FinishReason
from octavo.structured_outputs import StructuredOutputsParams
from octavo.text.chat_template import ChatTemplate
from octavo.text.tokenizer import Tokenizer

LONG_TEXT = 4096
"""Characters from which a prompt is tokenised in a thread: about a millisecond of work, during which streams would stall."""

LOG_STATS_INTERVAL_S = 10.0

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """The engine at this moment. Requests come from the ledger, blocks from the core's last message."""

    num_running: int
    num_waiting: int
    num_used_blocks: int
    num_blocks: int
    prefix_queries: int
    prefix_hits: int
    num_preemptions: int
    heartbeat_age_s: float


class AsyncLLMEngine:
    """Made by `start`. Belongs to one event loop; every method must be called on it.

    resolved_config       the configuration the core runs with
    model_config, tokenizer, chat_template, generation_defaults   what the model's files say
    metrics               a Prometheus registry of this engine alone
    weights_version       hex digest; changes whenever the model's files change
    description           the lines to print at start: weights, KV budget, context, compute
    """

    def __init__(self, model: ServedModel, supervisor: Supervisor, ready: CoreReady, ledger: Ledger) -> None:
        self.resolved_config: ResolvedConfig = ready.config
        self.max_model_len: int = ready.config.scheduler.max_model_len
        self.model_config: ModelConfig = model.config
        self.tokenizer: Tokenizer = model.tokenizer
        self.chat_template: ChatTemplate = model.chat_template
        self.generation_defaults: dict[str, float | int] = model.sampling.values
        self.weights_version = ready.weights_version.hex()
        self.description = [*ready.description, model.describe()]
        self.ledger, self.places = ledger, Places()
        self.metrics: CollectorRegistry = Metrics(ledger, model.name).registry
        self._supervisor = supervisor
        self._outputs = OutputProcessor(model.tokenizer, ledger)
        self._input = InputProcessor(
            model.tokenizer,
            model.config,
            self.max_model_len,
            scheduler_policy=ready.config.scheduler.scheduler_policy,
            random_seed=seeds(ready.config.loading.seed),
        )
        self._form_threads = ThreadPoolExecutor(MAX_PROCESSES, "octavo-forms")
        """Of their own: a slow form must not take the threads of other work."""
        self._streams: dict[str, RequestStream] = {}
        self._tokens = CoreTokens(self._input.token_table, self._send_tokens, lambda: not self._streams)
        self._tokens_task: asyncio.Task[None] | None = None
        self._closed: str | None = None
        """Why no new request is taken."""
        self._empty = asyncio.Event()
        self._empty.set()
        self._log_task: asyncio.Task[None] | None = None
        supervisor.watch(ready.config, self._on_step, self._on_lost, self._on_reconfigured)

    @classmethod
    async def start(
        cls,
        config: EngineConfig,
        *,
        log_stats_interval_s: float | None = None,
        log_requests: bool = False,
        log_level: str = "info",
        core_command: Sequence[str] = CORE_COMMAND,
        patience: Patience | None = None,
    ) -> AsyncLLMEngine:
        """Start a core process and wait until it serves; meanwhile this process loads the tokenizer.

        A model named by an embedded or hub name is fetched first. Raises ConfigError, LoadError or EngineDeadError.
        """
        check_options(config)
        config = await asyncio.to_thread(locate_model, config)
        supervisor = Supervisor(command=core_command, patience=patience, log_level=log_level)
        core = asyncio.create_task(supervisor.start(config))
        try:
            model = await asyncio.to_thread(load_served_model, config)
            model.chat_template.warm()
            ready = await core
        except BaseException:  # also when cancelled: no process may be left behind
            core.cancel()
            await asyncio.gather(core, return_exceptions=True)
            await supervisor.stop()
            raise
        engine = cls(model, supervisor, ready, Ledger([RequestLog()] if log_requests else []))
        for line in engine.description:
            _logger.info("%s", line)
        if engine._input.eos_token_ids:  # without one there are no forms
            engine._tokens_task = asyncio.create_task(engine._tokens.tell_when_idle())
        if log_stats_interval_s is not None:
            engine._log_task = asyncio.create_task(engine._log_stats(log_stats_interval_s))
        return engine

    @classmethod
    async def from_engine_args(cls, args: EngineArgs) -> AsyncLLMEngine:
        """`start` with vLLM's arguments; unlike there it must be awaited: the core starts meanwhile."""
        logs = args if isinstance(args, AsyncEngineArgs) else AsyncEngineArgs(disable_log_stats=True)
        return await cls.start(
            args.create_engine_config(),
            log_stats_interval_s=None if logs.disable_log_stats else LOG_STATS_INTERVAL_S,
            log_requests=not logs.disable_log_requests,
        )

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams,
        request_id: str | None = None,
        options: RequestOptions = NO_OPTIONS,
        *,
        priority: int | None = None,
        output_kind: RequestOutputKind | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Run one request and yield its deliveries. Closing or cancelling the iterator aborts it and frees all it holds.

        priority, output_kind: short for those of the options and of sampling_params.

        Raises InvalidRequestError, OverloadedError or EngineDeadError before the first delivery, RequestFailedError or
        EngineDeadError after it.
        """
        stream = await self.add_request(
            prompt, sampling_params, request_id, options, priority=priority, output_kind=output_kind
        )
        try:
            async for output in stream:
                yield output
        finally:
            stream.close()

    async def encode(
        self,
        prompt: Prompt,
        pooling_params: PoolingParams,
        request_id: str | None = None,
        options: RequestOptions = NO_OPTIONS,
        *,
        priority: int | None = None,
    ) -> AsyncGenerator[PoolingRequestOutput, None]:
        """The embedding of one prompt, as the only item. Closing or cancelling the iterator aborts it. Raises as `generate`."""
        async with aclosing(await self.add_request(prompt, pooling_params, request_id, options, priority=priority)) as stream:
            async for output in stream:
                yield PoolingRequestOutput.of(output)

    async def add_request(
        self,
        prompt: Prompt,
        params: SamplingParams | PoolingParams,
        request_id: str | None = None,
        options: RequestOptions = NO_OPTIONS,
        *,
        priority: int | None = None,
        output_kind: RequestOutputKind | None = None,
    ) -> RequestStream:
        """Queue one request; the stream must be read to its end or closed. Raises as the first step of `generate` does."""
        arrival_s = time.monotonic()
        if priority is not None:
            options = replace(options, priority=priority)
        self._admit(options.tenant, 0, params.n, arrival_s)
        request_id = request_id if request_id is not None else new_request_id()

        def prepare() -> Prepared:
            return self._input.prepare(prompt, params, request_id, options, arrival_s=arrival_s)

        form = params.structured_outputs
        if form is not None:
            await self.check_form(form)
        if isinstance(prompt, str) and len(prompt) > LONG_TEXT:
            prepared = await asyncio.to_thread(prepare)
        else:
            prepared = prepare()
        if prepared.request.grammar:
            await self._tokens.tell()
        # Others may have come meanwhile, and only now the length is known.
        self._admit(options.tenant, len(prepared.request.prompt_token_ids), params.n, time.monotonic())
        kind = output_kind or params.output_kind
        self._outputs.add(prepared.request, prepared.prompt, kind, prepared.embedding)
        stream = RequestStream(request_id, kind, self._drop)
        self._streams[request_id] = stream
        self._empty.clear()
        try:
            self._supervisor.send(AddRequest(prepared.request))
        except OctavoError:
            self._drop(request_id)
            raise
        return stream

    async def check_form(self, form: StructuredOutputsParams) -> None:
        """Raise InvalidRequestError naming the field if no answer can be held to this form. Its outcome is kept."""
        forms = self._input.forms
        if forms.is_known(form):
            forms.grammar(form)
        else:
            await asyncio.get_running_loop().run_in_executor(self._form_threads, forms.grammar, form)

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """End requests; their streams get a last delivery with finish_reason "abort". Ended and unknown ones are left alone."""
        for output in self._abort([request_id] if isinstance(request_id, str) else list(request_id)):
            if (stream := self._streams.get(output.request_id)) is not None:
                self._deliver(stream, output)

    async def check_health(self) -> None:
        """Raise EngineDeadError unless the core serves and was heard lately."""
        self._supervisor.check()

    def stats(self) -> EngineStats:
        """The engine's figures now."""
        ledger, totals = self.ledger, self.ledger.totals
        return EngineStats(
            num_running=ledger.num_running,
            num_waiting=ledger.num_queued,
            num_used_blocks=ledger.core.num_used_blocks,
            num_blocks=ledger.core.num_blocks,
            prefix_queries=totals.prefix_queries,
            prefix_hits=totals.prefix_hits,
            num_preemptions=totals.preemptions,
            heartbeat_age_s=self._supervisor.heartbeat_age_s,
        )

    async def reconfigure(self, **settings: int | float | str) -> ReconfigureReport:
        """Change settings while requests run, all or none, between two steps; see config.changes.Changes for their names.

        No request ends and no byte of an answer changes. Raises ConfigError naming the setting that cannot be.
        """
        changes = Changes.of(settings)
        answer = await self._supervisor.ask(lambda call_id: Reconfigure(call_id, changes))
        assert isinstance(answer, Reconfigured)
        return answer.report

    async def memory_stats(self) -> MemoryReport:
        """The KV cache in full, as it is between two steps."""
        answer = await self._supervisor.ask(ReadMemory)
        assert isinstance(answer, MemoryRead)
        return answer.report

    @property
    def core_pid(self) -> int | None:
        """Process id of the core; None while it is being restarted."""
        return self._supervisor.pid

    async def drain(self, timeout_s: float) -> None:
        """Take no new requests, let the running ones end for timeout_s seconds, then abort the rest."""
        self._closed = self._closed or "the server is shutting down"
        try:
            await asyncio.wait_for(self._empty.wait(), timeout_s)
        except asyncio.TimeoutError:
            await self.abort(list(self._streams))

    async def shutdown(self) -> None:
        """Stop the core process; requests that still run end with an EngineDeadError. Safe to call twice."""
        self._closed = "the engine is shut down"
        await asyncio.to_thread(self.chat_template.close)
        await asyncio.to_thread(self._input.forms.close)
        self._form_threads.shutdown(wait=False, cancel_futures=True)
        for task in (self._log_task, self._tokens_task):
            if task is not None:
                task.cancel()
        await self._supervisor.stop()
        error = EngineDeadError("the engine was shut down before this request was complete", code="request_aborted")
        self._end_all("was shut down", error)

    def _admit(self, tenant: str, num_prompt_tokens: int, num_choices: int, now_s: float) -> None:
        """Raise EngineDeadError or OverloadedError when a new request cannot be taken now."""
        if self._closed is not None:
            raise EngineDeadError(self._closed)
        self._supervisor.check()
        check_queue(self.ledger, self.resolved_config.scheduler, tenant, num_prompt_tokens, num_choices, now_s)

    def _abort(self, request_ids: list[str]) -> list[RequestOutput]:
        outputs = self._outputs.abort(request_ids, time.monotonic())
        self._tell_core([(output.request_id, -1) for output in outputs])
        return outputs

    def _drop(self, request_id: str) -> None:
        """The owner of a stream has gone: end the request, deliver nothing."""
        self._abort([request_id])
        self._forget(request_id)

    def _deliver(self, stream: RequestStream, output: RequestOutput) -> None:
        record = output.metrics
        if record is not None and record.outcome is FinishReason.SHED:
            now_s = time.monotonic()
            wait_s = retry_after_s(self.ledger, self.ledger.num_queued, now_s)
            stream.fail(OverloadedError(f"{output.error}; try again later", retry_after_s=wait_s))
        else:
            stream.put(output)
        if output.finished:
            self._forget(stream.request_id)

    def _forget(self, request_id: str) -> None:
        self._streams.pop(request_id, None)
        if not self._streams:
            self._empty.set()

    def _tell_core(self, aborts: list[tuple[str, int]]) -> None:
        if aborts:
            try:
                self._supervisor.send(AbortChoices(aborts))
            except OctavoError as error:
                _logger.debug("no core to abort requests in: %s", error)  # they died with it

    def _on_step(self, message: StepOutputs) -> None:
        processed = self._outputs.process(message, time.monotonic())
        self._tell_core(processed.aborts)
        for output in processed.outputs:
            stream = self._streams.get(output.request_id)
            if stream is not None:
                self._deliver(stream, output)

    def _on_reconfigured(self, answer: Reconfigured) -> None:
        # A restarted core gets what was in force when the last one was lost.
        self.resolved_config = self._supervisor.config = answer.report.config
        self._input.scheduler_policy = answer.report.config.scheduler.scheduler_policy

    def _send_tokens(self, table: TokenTable) -> None:
        self._supervisor.send(SetTokens(table))

    def _on_lost(self, cause: str) -> None:
        self._tokens.core_lost()
        self.ledger.core_lost()
        self._end_all(cause, EngineDeadError(f"the engine core {cause} while the request ran; send it again"))

    def _end_all(self, cause: str, error: EngineDeadError) -> None:
        """The core is gone, and with it every request: each stream ends with an error, exactly once."""
        self._outputs.fail_all(f"the engine core {cause}", time.monotonic())
        for stream in list(self._streams.values()):
            stream.fail(error)
            self._forget(stream.request_id)

    async def _log_stats(self, interval_s: float) -> None:
        stats_log = StatsLog(self.ledger, time.monotonic())
        while True:
            await asyncio.sleep(interval_s)
            stats_log.print_lines(time.monotonic())
