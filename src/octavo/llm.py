"""LLM: the offline entry. Prompts in, completions out, with the core in this process."""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from octavo.engine.args import EngineArgs
from octavo.engine.frontend.outputs import RequestOutput
from octavo.engine.frontend.pooling import cosine
from octavo.engine.frontend.pooling_outputs import (
    EmbeddingRequestOutput,
    PoolingRequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
)
from octavo.engine.frontend.prompt import Prompt
from octavo.engine.guard import Guard, guarded
from octavo.engine.llm_engine import LLMEngine
from octavo.errors import InvalidRequestError
from octavo.kvcache.report import MemoryReport
from octavo.loader.progress import PullProgress
from octavo.pooling_params import PoolingParams
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.text.chat_encoding import encode_chat
from octavo.text.chat_template import ChatTemplate
from octavo.text.tokenizer_face import TokenizerFace

ValueT = TypeVar("ValueT")
Message = Mapping[str, Any]
"""One chat message: {"role": ..., "content": ...}."""


class LLM:
    """A model and an engine for batches of prompts. `model` and all further options are those of EngineArgs.

    Use it as a context manager, call `close`, or let it be collected: each frees the model. Threads that share
    it wait for each other; a forked copy of the process cannot use it.
    """

    def __init__(self, model: str | None = None, **engine_args: Any) -> None:
        """Load the model (the embedded default without one). Raises ConfigError or LoadError."""
        config = EngineArgs(model, **engine_args).create_engine_config()
        with PullProgress() as report:
            self.llm_engine = LLMEngine(config, report=report)
        self._num_requests = 0
        self._guard = Guard("LLM")
        self._finalizer = weakref.finalize(self, LLMEngine.shutdown, self.llm_engine)

    @guarded
    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        lora_request: None = None,
        priority: int | Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Complete every prompt; the results stand in the order of the prompts.

        prompts          text, token ids, a TextPrompt or TokensPrompt, or a list of such
        sampling_params  one for all, one per prompt, or None for the model's own defaults
        use_tqdm         show a progress bar
        lora_request     there are no adapters: None
        priority         one for all or one per prompt, lower first; for the scheduler policy that reads it
        Raises InvalidRequestError naming the prompt's index if any is refused; nothing is computed then. A request that fails
        while it runs has finish_reason "error" and does not disturb the others.
        """
        _refuse_adapter(lora_request)
        batch = _as_batch(prompts)
        given = self.get_default_sampling_params() if sampling_params is None else sampling_params
        params = _per_prompt("sampling_params", given, SamplingParams, len(batch))
        priorities = _per_prompt("priority", 0 if priority is None else priority, int, len(batch))
        return self._run_all("completions", batch, params, priorities, bool(use_tqdm))

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
        lora_request: None = None,
        chat_template: str | None = None,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        priority: int | Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation or a list of them, rendered with the model's chat template or the given one (Jinja)."""
        engine = self.llm_engine
        template = engine.chat_template
        if chat_template is not None:
            template = ChatTemplate.for_tokenizer(engine.tokenizer, chat_template)
        one = not messages or isinstance(messages[0], Mapping)
        conversations = cast("Sequence[Sequence[Message]]", [messages] if one else messages)
        prompts = [
            encode_chat(
                engine.tokenizer,
                template,
                [_with_content(message) for message in conversation],
                tools=tools,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                template_kwargs=chat_template_kwargs,
            )
            for conversation in conversations
        ]
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm, lora_request=lora_request, priority=priority)

    @guarded
    def encode(
        self,
        prompts: Prompt | Sequence[Prompt],
        pooling_params: PoolingParams | Sequence[PoolingParams] | None = None,
        *,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: bool = True,
        lora_request: None = None,
        pooling_task: str | None = None,
    ) -> list[PoolingRequestOutput]:
        """The vector of every prompt, as a numpy array; the results stand in the order of the prompts.

        pooling_params          one for all, one per prompt, or None for what the model's files say
        truncate_prompt_tokens  short for that of pooling_params
        pooling_task            "embed", the only one
        Raises InvalidRequestError as `generate` does, RequestFailedError for a request that fails while it runs.
        """
        _refuse_adapter(lora_request)
        batch = _as_batch(prompts)
        given = PoolingParams() if pooling_params is None else pooling_params
        params = [one.clone() for one in _per_prompt("pooling_params", given, PoolingParams, len(batch))]
        for one in params:
            one.task = one.task if pooling_task is None else pooling_task
            if truncate_prompt_tokens is not None:
                one.truncate_prompt_tokens = truncate_prompt_tokens
        outputs = self._run_all("embeddings", batch, params, [0] * len(batch), bool(use_tqdm))
        return [PoolingRequestOutput.of(output) for output in outputs]

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: bool = True,
        pooling_params: PoolingParams | Sequence[PoolingParams] | None = None,
        lora_request: None = None,
    ) -> list[EmbeddingRequestOutput]:
        """The embedding of every prompt, as a list of numbers; see `encode`."""
        outputs = self.encode(
            prompts,
            pooling_params,
            truncate_prompt_tokens=truncate_prompt_tokens,
            use_tqdm=use_tqdm,
            lora_request=lora_request,
        )
        return [EmbeddingRequestOutput.of(output) for output in outputs]

    def score(
        self,
        data_1: Prompt | Sequence[Prompt],
        data_2: Prompt | Sequence[Prompt],
        *,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: bool = True,
        pooling_params: PoolingParams | None = None,
        lora_request: None = None,
    ) -> list[ScoringRequestOutput]:
        """The cosine of the embeddings of each pair of texts. One text in data_1 is paired with all of data_2."""
        firsts, seconds = _as_batch(data_1), _as_batch(data_2)
        if len(firsts) not in (1, len(seconds)):
            raise InvalidRequestError(
                f"data_1 has {len(firsts)} texts and data_2 has {len(seconds)}; data_1 must have as many, or one",
                param="data_1",
            )
        outputs = self.encode(
            [*firsts, *seconds],
            pooling_params,
            truncate_prompt_tokens=truncate_prompt_tokens,
            use_tqdm=use_tqdm,
            lora_request=lora_request,
        )
        ones, others = outputs[: len(firsts)], outputs[len(firsts) :]
        if len(ones) == 1:
            ones = ones * len(others)
        return [
            ScoringRequestOutput(
                f"{one.request_id}_{other.request_id}",
                ScoringOutput(cosine(one.outputs.data, other.outputs.data)),
                one.prompt_token_ids + other.prompt_token_ids,
                one.num_cached_tokens + other.num_cached_tokens,
            )
            for one, other in zip(ones, others, strict=True)
        ]

    def memory_stats(self) -> MemoryReport:
        """The KV cache in full: counts, waste, block map, block tables."""
        return self.llm_engine.memory_stats()

    def get_tokenizer(self) -> TokenizerFace:
        """The model's tokenizer, with the methods of a transformers one."""
        return TokenizerFace(self.llm_engine.tokenizer, self.llm_engine.chat_template)

    def get_default_sampling_params(self) -> SamplingParams:
        """SamplingParams with the defaults the model's files recommend."""
        defaults: dict[str, Any] = dict(self.llm_engine.sampling_advice.values)
        return SamplingParams(**defaults)

    def close(self) -> None:
        """Free the model. Safe to call twice."""
        self._finalizer()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run_all(
        self,
        what: str,
        prompts: Sequence[Prompt],
        params: Sequence[SamplingParams | PoolingParams],
        priorities: Sequence[int],
        show_progress: bool,
    ) -> list[RequestOutput]:
        """Run one request per prompt to its end. Raises InvalidRequestError naming the prompt; nothing is computed then."""
        request_ids: list[str] = []
        try:
            for index, request in enumerate(zip(prompts, params, priorities, strict=True)):
                request_ids.append(self._add(index, *request))
            return self._run(what, request_ids, show_progress)
        except BaseException:
            # Refused, or interrupted from the keyboard: leave nothing behind for the next call.
            self.llm_engine.abort_request(request_ids)
            self.llm_engine.step()
            raise

    def _add(self, index: int, prompt: Prompt, params: SamplingParams | PoolingParams, priority: int) -> str:
        request_id = f"{self._num_requests}"
        self._num_requests += 1
        try:
            self.llm_engine.add_request(
                request_id, prompt, params, priority=priority, output_kind=RequestOutputKind.FINAL_ONLY
            )
        except InvalidRequestError as error:
            error.message = f"prompt {index}: {error.message}"
            error.args = (error.message,)
            raise
        return request_id

    def _run(self, what: str, request_ids: list[str], show_progress: bool) -> list[RequestOutput]:
        """Step until every request has ended; outputs in the order of request_ids."""
        finished: dict[str, RequestOutput] = {}
        with _progress_bar(disable=not show_progress) as progress:
            task = progress.add_task(what, total=len(request_ids), rate="")
            start_s, num_tokens = time.monotonic(), 0
            while self.llm_engine.has_unfinished_requests():
                for output in self.llm_engine.step():
                    finished[output.request_id] = output
                    num_tokens += sum(len(choice.token_ids) for choice in output.outputs)
                    rate = f"{num_tokens / max(1e-9, time.monotonic() - start_s):.1f} tokens/s"
                    progress.update(task, advance=1, rate=rate)
        return [finished[request_id] for request_id in request_ids]


def _per_prompt(name: str, given: Any, kind: type[ValueT], count: int) -> list[ValueT]:
    """One value for each of `count` prompts, from one for all or a list. Raises InvalidRequestError."""
    if isinstance(given, kind):
        return [given] * count
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence):
        raise InvalidRequestError(f"{name} must be one {kind.__name__} or a list, not {type(given).__name__}", param=name)
    if len(given) != count:
        raise InvalidRequestError(f"there are {count} prompts but {len(given)} {name}", param=name)
    return list(given)


def _with_content(message: Message) -> Message:
    """A message without content (a call of tools) has an empty one, as in vLLM: most templates expect a text."""
    return {**message, "content": ""} if isinstance(message, Mapping) and message.get("content") is None else message


def _refuse_adapter(lora_request: object) -> None:
    if lora_request is not None:
        raise InvalidRequestError(
            "lora_request: there are no adapters; merge it into the weights first (merge_and_unload in PEFT)",
            param="lora_request",
        )


def _as_batch(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """A list of prompts from one prompt (text, token ids, a vLLM dict) or a list of prompts."""
    if isinstance(prompts, (str, Mapping)) or (len(prompts) > 0 and isinstance(prompts[0], int)):
        return [cast(Prompt, prompts)]
    return list(cast("Sequence[Prompt]", prompts))


def _progress_bar(*, disable: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[rate]}"),
        console=Console(stderr=True),
        transient=True,
        disable=disable,
    )
