"""LLM: the offline entry. Prompts in, completions out, with the core in this process."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from octavo.dialogue.dialect import choose_dialect
from octavo.dialogue.history import as_template_wants
from octavo.dialogue.tools import Tools
from octavo.engine.args import EngineArgs
from octavo.engine.frontend.beam_search import BeamSearch, BeamSearchOutput, BeamSearchParams, BeamSearchSequence
from octavo.engine.frontend.outputs import RequestOutput
from octavo.engine.frontend.pooling import cosine
from octavo.engine.frontend.pooling_outputs import (
    EmbeddingRequestOutput,
    PoolingRequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
)
from octavo.engine.frontend.prompt import Prompt, TokensPrompt, read_prompt
from octavo.engine.guard import Guard, guarded
from octavo.engine.llm_engine import LLMEngine
from octavo.engine.progress import UseTqdm, completion_bar
from octavo.errors import InvalidRequestError
from octavo.kvcache.report import MemoryReport
from octavo.loader.progress import PullProgress
from octavo.pooling_params import PoolingParams
from octavo.sampling_params import RequestOutputKind, SamplingParams
from octavo.text.chat_encoding import encode_chat
from octavo.text.content_format import content_format
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
        use_tqdm: UseTqdm = True,
        lora_request: None = None,
        priority: int | Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Complete every prompt; the results stand in the order of the prompts.

        prompts          text, token ids, a TextPrompt or TokensPrompt, or a list of such
        sampling_params  one for all, one per prompt, or None for the model's own defaults
        use_tqdm         show a progress bar, or what makes one, such as functools.partial(tqdm, leave=False)
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
        return self._run_all("completions", batch, params, priorities, use_tqdm)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: UseTqdm = True,
        lora_request: None = None,
        chat_template: str | None = None,
        chat_template_content_format: str = "auto",
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        *,
        documents: Sequence[Mapping[str, Any]] | None = None,
        priority: int | Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation or a list of them, rendered with the model's chat template or the given one (Jinja).

        tools are shown to the model, also where its template knows none; its calls come back as the text that it writes.

        chat_template_content_format  how the template gets the content of messages: as a text ("string"), as a list of parts
                                      ("openai"), or as it wants it ("auto")
        documents                     what the template is to show the model besides the conversation, if it knows how
        """
        engine = self.llm_engine
        template = engine.chat_template
        if chat_template is not None:
            template = template.with_source(chat_template)
        form = content_format(chat_template_content_format)
        conversations = _conversations(messages)
        dialect = choose_dialect(template.sources, knows_tools=template.knows_tools)
        given = Tools(tools).given if tools else None
        shown = [as_template_wants(dialect, conversation, given) for conversation in conversations]
        prompts = [
            encode_chat(
                engine.tokenizer,
                template,
                [_with_content(message) for message in conversation],
                tools=shown_tools,
                documents=documents,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                template_kwargs=chat_template_kwargs,
                content_format=form,
            )
            for conversation, shown_tools in shown
        ]
        return self.generate(
            [self._rendered(ids) for ids in prompts],
            sampling_params,
            use_tqdm=use_tqdm,
            lora_request=lora_request,
            priority=priority,
        )

    def beam_search(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: BeamSearchParams,
        lora_request: None = None,
        use_tqdm: UseTqdm = False,
    ) -> list[BeamSearchOutput]:
        """The params.beam_width likeliest continuations of every prompt, the best first; the same in every run.

        use_tqdm  show a progress bar for each token of all beams together
        Raises InvalidRequestError as `generate` does.
        """
        if not isinstance(params, BeamSearchParams):
            raise InvalidRequestError(f"params must be BeamSearchParams, not {type(params).__name__}", param="params")
        engine, tokenizer = self.llm_engine, self.llm_engine.tokenizer
        parts, searches = [], []
        for index, prompt in enumerate(_as_batch(prompts)):
            with _named(index):
                parts.append(read_prompt(prompt))
                token_ids = engine.token_ids(parts[-1])
            searches.append(BeamSearch(token_ids, params, engine.eos_token_ids, engine.max_model_len))
        while any(search.prompts for search in searches):
            steps = [
                [TokensPrompt(prompt_token_ids=ids, cache_salt=part.cache_salt or "") for ids in search.prompts]
                for part, search in zip(parts, searches, strict=True)
            ]
            together = [prompt for step in steps for prompt in step]
            outputs = iter(self.generate(together, params.sampling, use_tqdm=use_tqdm, lora_request=lora_request))
            for search, step in zip(searches, steps, strict=True):
                search.advance([next(outputs).next_logprobs() for _ in step])
        return [
            BeamSearchOutput([BeamSearchSequence.of(search.prompt_token_ids, beam, tokenizer) for beam in search.best()])
            for search in searches
        ]

    @guarded
    def encode(
        self,
        prompts: Prompt | Sequence[Prompt],
        pooling_params: PoolingParams | Sequence[PoolingParams] | None = None,
        *,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: UseTqdm = True,
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
        outputs = self._run_all("embeddings", batch, params, [0] * len(batch), use_tqdm)
        return [PoolingRequestOutput.of(output) for output in outputs]

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: UseTqdm = True,
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
        use_tqdm: UseTqdm = True,
        pooling_params: PoolingParams | None = None,
        lora_request: None = None,
    ) -> list[ScoringRequestOutput]:
        """The cosine of the embeddings of each pair of texts. One text in data_1 is paired with all of data_2."""
        firsts, seconds = _as_batch(data_1, "data_1"), _as_batch(data_2, "data_2")
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
        use_tqdm: UseTqdm,
    ) -> list[RequestOutput]:
        """Run one request per prompt to its end. Raises InvalidRequestError naming the prompt; nothing is computed then."""
        request_ids: list[str] = []
        try:
            for index, request in enumerate(zip(prompts, params, priorities, strict=True)):
                request_ids.append(self._add(index, *request))
            return self._run(what, request_ids, use_tqdm)
        except BaseException:
            # Refused, or interrupted from the keyboard: leave nothing behind for the next call.
            self.llm_engine.abort_request(request_ids)
            self.llm_engine.step()
            raise

    def _add(self, index: int, prompt: Prompt, params: SamplingParams | PoolingParams, priority: int) -> str:
        request_id = f"{self._num_requests}"
        self._num_requests += 1
        with _named(index):
            self.llm_engine.add_request(request_id, prompt, params, priority=priority, output_kind=RequestOutputKind.FINAL_ONLY)
        return request_id

    def _rendered(self, token_ids: list[int]) -> TokensPrompt:
        """A conversation as a prompt, with its text for the output."""
        text = self.llm_engine.tokenizer.decode(token_ids, skip_special_tokens=False)
        return TokensPrompt(prompt_token_ids=token_ids, prompt=text)

    def _run(self, what: str, request_ids: list[str], use_tqdm: UseTqdm) -> list[RequestOutput]:
        """Step until every request has ended; outputs in the order of request_ids."""
        finished: dict[str, RequestOutput] = {}
        with completion_bar(use_tqdm, what, len(request_ids)) as advance:
            while self.llm_engine.has_unfinished_requests():
                for output in self.llm_engine.step():
                    finished[output.request_id] = output
                    advance(sum(len(choice.token_ids) for choice in output.outputs))
        return [finished[request_id] for request_id in request_ids]


@contextmanager
def _named(index: int) -> Iterator[None]:
    """Within it, a refusal says which prompt it is about."""
    try:
        yield
    except InvalidRequestError as error:
        error.message = f"prompt {index}: {error.message}"
        error.args = (error.message,)
        raise


def _per_prompt(name: str, given: Any, kind: type[ValueT], count: int) -> list[ValueT]:
    """One value for each of `count` prompts, from one for all or a list. Raises InvalidRequestError."""
    if isinstance(given, kind):
        return [given] * count
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence):
        raise InvalidRequestError(f"{name} must be one {kind.__name__} or a list, not {type(given).__name__}", param=name)
    if len(given) != count:
        raise InvalidRequestError(f"there are {count} prompts but {len(given)} {name}", param=name)
    for index, value in enumerate(given):
        if not isinstance(value, kind):
            raise InvalidRequestError(f"{name}[{index}] must be {kind.__name__}, not {type(value).__name__}", param=name)
    return list(given)


def _conversations(messages: object) -> list[Sequence[Message]]:
    """The conversations of one, a list of messages, or of a list of such. What the messages are is looked at later."""
    if not _is_list(messages):
        raise InvalidRequestError(
            f"messages must be a list of messages, or of such lists, not {type(messages).__name__}", param="messages"
        )
    given = cast("Sequence[Any]", messages)
    if given and all(map(_is_list, given)):
        return list(given)
    return [given]


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _with_content(message: Message) -> Message:
    """A message without content (a call of tools) has an empty one, as in vLLM: most templates expect a text."""
    return {**message, "content": ""} if isinstance(message, Mapping) and message.get("content") is None else message


def _refuse_adapter(lora_request: object) -> None:
    if lora_request is not None:
        raise InvalidRequestError(
            "lora_request: there are no adapters; merge it into the weights first (merge_and_unload in PEFT)",
            param="lora_request",
        )


def _as_batch(prompts: Prompt | Sequence[Prompt], name: str = "prompts") -> list[Prompt]:
    """A list of prompts from one prompt (text, token ids, a vLLM dict) or a list of prompts. name: of the argument."""
    if isinstance(prompts, (str, Mapping)):
        return [cast(Prompt, prompts)]
    if not isinstance(prompts, Sequence):
        raise InvalidRequestError(f"{name} must be a prompt or a list of prompts, not {type(prompts).__name__}", param=name)
    if len(prompts) > 0 and isinstance(prompts[0], int):
        return [cast(Prompt, prompts)]
    return list(cast("Sequence[Prompt]", prompts))
