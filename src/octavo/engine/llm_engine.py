"""LLMEngine: the synchronous face, with the core in this process. One thread drives it: add_request, then step until done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from octavo.config.changes import Changes
from octavo.config.engine import EngineConfig
from octavo.config.model import ModelConfig
from octavo.config.resolve import check_options
from octavo.config.resolved import ResolvedConfig
from octavo.engine.args import EngineArgs
from octavo.engine.core.build import BuiltCore, build_core
from octavo.engine.frontend.input import InputProcessor, seeds
from octavo.engine.frontend.ledger import Ledger
from octavo.engine.frontend.output_processor import OutputProcessor
from octavo.engine.frontend.outputs import RequestOutput
from octavo.engine.frontend.prompt import Prompt, PromptParts
from octavo.engine.frontend.served_model import load_served_model, locate_model
from octavo.engine.guard import Guard, guarded
from octavo.engine.wire.messages import CoreStats, ReconfigureReport
from octavo.errors import EngineDeadError, InvalidRequestError
from octavo.kvcache.report import MemoryReport
from octavo.loader.pypi import FetchReport
from octavo.loader.sampling_advice import SamplingAdvice
from octavo.ops.interface import Program
from octavo.pooling_params import PoolingParams
from octavo.request import NO_OPTIONS, RequestOptions
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.text.chat_template import ChatTemplate
from octavo.text.tokenizer import Tokenizer


class LLMEngine:
    """Engines share nothing: several may live in one process. Each method is one turn: threads wait for each other.

    model_config, tokenizer, chat_template, sampling_advice   what the model's files say
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        make_core: Callable[[EngineConfig], BuiltCore] = build_core,
        report: FetchReport | None = None,
    ) -> None:
        """Load the model. `report` hears of a download's progress. Raises ConfigError or LoadError."""
        check_options(config)
        config = locate_model(config, report)
        model = load_served_model(config)
        built = make_core(config)
        self.description = [*built.description, model.describe()]
        self.max_model_len = built.resolved.max_model_len
        self.model_config: ModelConfig = model.config
        self.tokenizer: Tokenizer = model.tokenizer
        self.chat_template: ChatTemplate = model.chat_template
        self.sampling_advice: SamplingAdvice = model.sampling
        self.ledger = Ledger()
        self._core = built.core
        self._program = built.program
        self._input = InputProcessor(
            model.tokenizer,
            model.config,
            self.max_model_len,
            scheduler_policy=built.resolved.config.scheduler.scheduler_policy,
            random_seed=seeds(config.loading.seed),
        )
        self._outputs = OutputProcessor(model.tokenizer, self.ledger)
        self._core_has_tokens = False
        self._aborted: list[RequestOutput] = []
        self._closed = False
        self._guard = Guard("LLMEngine")

    @property
    def resolved_config(self) -> ResolvedConfig:
        """The configuration in force."""
        return self._final_config if self._closed else self._core.config

    @property
    def eos_token_ids(self) -> list[int]:
        """The ends of sequence that the model's files name."""
        return self._input.eos_token_ids

    def token_ids(self, prompt: PromptParts) -> list[int]:
        """Checked token ids of a prompt, which leave room for an answer. Raises InvalidRequestError or ContextLengthError."""
        token_ids = self._input.token_ids(prompt)
        self._input.room(len(token_ids))
        return token_ids

    @classmethod
    def from_engine_args(cls, args: EngineArgs) -> LLMEngine:
        return cls(args.create_engine_config())

    @guarded
    def add_request(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams | PoolingParams,
        options: RequestOptions = NO_OPTIONS,
        *,
        priority: int | None = None,
        output_kind: RequestOutputKind | None = None,
    ) -> None:
        """Queue one request; priority and output_kind are short for those of the options and of params. With PoolingParams its
        only delivery has the embedding in `pooled`.

        Raises InvalidRequestError or ContextLengthError naming the field.
        """
        if self._closed:
            raise EngineDeadError("the engine is shut down")
        if priority is not None:
            options = replace(options, priority=priority)
        prepared = self._input.prepare(prompt, params, request_id, options, arrival_s=time.monotonic())
        kind = output_kind or params.output_kind
        self._outputs.add(prepared.request, prepared.prompt, kind, prepared.embedding)
        if prepared.request.grammar and not self._core_has_tokens:
            self._core.set_tokens(self._input.token_table())
            self._core_has_tokens = True
        self._core.add_request(prepared.request)

    @guarded
    def step(self) -> list[RequestOutput]:
        """Compute one step and return the deliveries of the requests that gained something."""
        if self._closed:
            raise EngineDeadError("the engine is shut down")
        aborted, self._aborted = self._aborted, []
        if not self._core.has_work():
            return aborted
        processed = self._outputs.process(self._core.step(), time.monotonic())
        self._core.tune()
        for request_id, choice in processed.aborts:
            self._core.abort(request_id, choice)
        return aborted + processed.outputs

    @guarded
    def abort_request(self, request_ids: str | Iterable[str]) -> None:
        """End requests; the next step delivers them with finish_reason "abort". Ended and unknown ones are left alone."""
        if not isinstance(request_ids, Iterable):
            raise InvalidRequestError(
                f"request_ids must be an id or several, not {type(request_ids).__name__}", param="request_ids"
            )
        wanted = [request_ids] if isinstance(request_ids, str) else list(request_ids)
        for output in self._outputs.abort(wanted, time.monotonic()):
            self._core.abort(output.request_id)
            self._aborted.append(output)

    def has_unfinished_requests(self) -> bool:
        """Whether `step` still has something to compute or to deliver."""
        return self.ledger.num_live > 0 or bool(self._aborted)

    def get_num_unfinished_requests(self) -> int:
        return self.ledger.num_live

    @guarded
    def stats(self) -> CoreStats:
        """Gauges now and counters since the start: running, waiting, blocks, prefix hits, preemptions, steps."""
        return self._core.stats()

    @guarded
    def reconfigure(self, **settings: int | float | str) -> ReconfigureReport:
        """Change settings between two steps, all or none; see config.changes.Changes for their names.

        No request ends and no byte of an answer changes. Raises ConfigError naming the setting that cannot be.
        """
        if self._closed:
            raise EngineDeadError("the engine is shut down")
        report = self._core.reconfigure(Changes.of(settings))
        self._input.scheduler_policy = report.config.scheduler.scheduler_policy
        return report

    @guarded
    def memory_stats(self) -> MemoryReport:
        """The KV cache in full: counts, waste, block map, block tables."""
        if self._closed:
            raise EngineDeadError("the engine is shut down")
        return self._core.memory_report()

    @property
    def program(self) -> Program[object]:
        """What the worker runs now: `start_profile` and `profile` tell what its steps cost. `reconfigure` may replace it."""
        assert self._program is not None, "the engine is shut down, or its worker has no program"
        return self._program()

    @guarded
    def check_integrity(self) -> None:
        """Assert that every block, sequence and request is accounted for."""
        self._core.check_integrity()
        self.ledger.check_integrity()

    def shutdown(self) -> None:
        """Abort what runs and let go of the model's memory. Safe to call twice."""
        if self._guard.is_foreign:
            return  # a forked copy leaves everything as it is
        if not self._closed:
            self._final_config = self._core.config
            self._closed = True
            self.chat_template.close()
            self._input.forms.close()
            self.abort_request(self.ledger.live_ids)
            self._aborted.clear()
            del self._core
            self._program = None
