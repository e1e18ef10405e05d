"""Service: the served model as every protocol sees it. Text and names go in, checked token ids and parameters come out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from octavo.dialogue.dialect import Dialect
from octavo.dialogue.history import as_template_wants
from octavo.engine.frontend.input import eos_token_ids, require_text_model
from octavo.errors import ContextLengthError, InvalidRequestError, NotFoundError
from octavo.sampling_params import SamplingParams
from octavo.server.service.engine_face import Engine
from octavo.server.service.template_options import TemplateOptions
from octavo.structured_outputs import StructuredOutputsParams
from octavo.text.chat_encoding import encode_chat
from octavo.text.content_format import ContentFormat
from octavo.text.template_process import MAX_PROCESSES
from octavo.text.truncation import MAX_CUT, Truncation

DEFAULTED_FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""As in vLLM: absent means the model's generation_config.json, and where that is silent, SamplingParams' default."""

MAX_COUNTED = 65536
"""Most tokens of a prompt that are counted or shown when the context is shorter: about a megabyte of text, a second of work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The engine and the names the API answers with.

    model_names         the names it goes by; the first stands in the `model` field of answers
    trusts_request_templates  a request may bring a chat template of its own
    content_format      how templates get the content of messages; None: as each one wants it
    template_kwargs     variables of the chat template that requests do not give
    response_role       the role of answers to a generation prompt
    system_fingerprint  octavo version and weights version: equal fingerprints give equal bytes for equal requests
    dialect             how the model writes reasoning and tool calls
    """

    engine: Engine
    model_names: tuple[str, ...]
    system_fingerprint: str
    dialect: Dialect
    trusts_request_templates: bool = False
    content_format: ContentFormat | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    response_role: str = "assistant"
    created: int = field(default_factory=lambda: int(time.time()))
    _chat_threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(MAX_PROCESSES, "octavo-chat"))

    @property
    def model_name(self) -> str:
        return self.model_names[0]

    @property
    def vocab_size(self) -> int:
        """Rows of the model's embedding: ids below it are valid, also where the tokenizer knows fewer."""
        return self.engine.model_config.vocab_size

    @property
    def eos_token_ids(self) -> list[int]:
        """The ends of sequence that the model's files name."""
        return eos_token_ids(self.engine.model_config, self.engine.tokenizer)

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus output in tokens."""
        return self.engine.max_model_len

    @property
    def max_counted(self) -> int:
        """Most tokens of a prompt that is only looked at: the context, or MAX_COUNTED if that is more."""
        return max(self.max_model_len, MAX_COUNTED)

    @property
    def template_knows_developer(self) -> bool:
        """The chat template tells the role "developer" from "system"."""
        return any("developer" in source for source in self.engine.tokenizer.spec.chat_templates.values())

    def check_model(self, name: str | None) -> None:
        """Raise NotFoundError unless name is one of the served model's; None and "" mean it."""
        if name and name not in self.model_names:
            raise NotFoundError(
                f"the model {name[:100]!r} does not exist; this server has {', '.join(map(repr, self.model_names))}",
                param="model",
                code="model_not_found",
            )

    def require_text_model(self) -> None:
        """Raise InvalidRequestError for a model that makes embeddings alone."""
        require_text_model(self.engine.model_config)

    async def encode_text(
        self, text: str, max_tokens: int, *, add_special_tokens: bool, truncation: Truncation | None = None
    ) -> list[int]:
        """Token ids of a prompt, which may be refused early when there are clearly more than max_tokens; cut if so asked.

        In a thread: a long prompt takes a good part of a second, and the streams of others must go on.
        """
        tokenizer = self.engine.tokenizer

        def encode(limit: int) -> list[int]:
            tokenizer.require_fits(text, limit, "prompt")
            return tokenizer.encode(text, add_special_tokens=add_special_tokens)

        run = partial(encode, max_tokens) if truncation is None else partial(self._cut, encode, truncation)
        return await self._timed(None, run)

    def _cut(self, encode: Callable[[int], list[int]], truncation: Truncation) -> list[int]:
        """What `encode` gives within a limit of its own, cut."""
        limit = max(self.max_model_len, MAX_CUT)
        try:
            token_ids = encode(limit)
        except ContextLengthError as error:
            raise InvalidRequestError(
                f"{error.param} is too long to be cut: it has clearly more than {limit} tokens; send less of it",
                param=error.param,
                code=error.code,
            ) from None
        return truncation.cut(token_ids, self.engine.tokenizer.spec.prefix_ids)

    async def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        max_tokens: int,
        tools: Sequence[Mapping[str, Any]],
        options: TemplateOptions,
        truncation: Truncation | None = None,
    ) -> list[int]:
        """Token ids of a conversation; early refusal as for a text. Tools are shown also where the template knows none.

        In threads of their own: a slow template waits for its process there, and must not take the threads of other work.
        """
        if options.source is not None and not self.trusts_request_templates:
            raise InvalidRequestError(
                "chat_template is not taken from requests here; leave it out, or start the server with "
                "--trust-request-chat-template",
                param="chat_template",
                code="unsupported_field",
            )
        shown, shown_tools = as_template_wants(self.dialect, messages, tools or None)

        def encode(limit: int) -> list[int]:
            template = self.engine.chat_template
            return encode_chat(
                self.engine.tokenizer,
                template if options.source is None else template.with_source(options.source),
                shown,
                tools=shown_tools,
                documents=options.documents,
                add_generation_prompt=options.add_generation_prompt,
                continue_final_message=options.continue_final_message,
                template_kwargs={**self.template_kwargs, **(options.kwargs or {})},
                max_tokens=limit,
                content_format=self.content_format,
                add_special_tokens=options.add_special_tokens,
            )

        run = partial(encode, max_tokens) if truncation is None else partial(self._cut, encode, truncation)
        return await self._timed(self._chat_threads, run)

    async def _timed(self, threads: ThreadPoolExecutor | None, run: Callable[[], list[int]]) -> list[int]:
        """Run it in a thread; its time, waiting for one included, counts as that of a prompt."""
        start_s = time.perf_counter()
        token_ids = await asyncio.get_running_loop().run_in_executor(threads, run)
        self.engine.ledger.tokenize_times.observe(time.perf_counter() - start_s)
        return token_ids

    def check_ids(self, ids: list[Any], param: str) -> list[int]:
        """ids unless one is no token id of the vocabulary: InvalidRequestError."""
        if any(type(token_id) is float for token_id in ids):  # 5.0 is the whole number 5
            ids = [int(i) if isinstance(i, float) and i.is_integer() else i for i in ids]
        if ids and {type(token_id) for token_id in ids} != {int}:
            raise InvalidRequestError(f"{param} mixes token ids with other values", param=param, code="invalid_type")
        if ids and not (min(ids) >= 0 and max(ids) < self.vocab_size):
            wrong = next(token_id for token_id in ids if not 0 <= token_id < self.vocab_size)
            shown = str(wrong) if abs(wrong) < 2**63 else "of more than 64 bits"
            raise InvalidRequestError(
                f"{param} holds the token id {shown}; the model has ids 0 to {self.vocab_size - 1}",
                param=param,
                code="token_out_of_range",
            )
        return ids

    def require_room(self, num_prompt_tokens: int, param: str) -> None:
        """Raise ContextLengthError unless the context has room for the prompt and one token more."""
        if num_prompt_tokens >= self.max_model_len:
            raise ContextLengthError.of(f"{param} has {num_prompt_tokens} tokens", self.max_model_len, param)

    def sampling_params(self, values: Mapping[str, Any], form: StructuredOutputsParams | None) -> SamplingParams:
        """Checked parameters from those fields of SamplingParams that a request gives; the model's own defaults fill the rest.

        form  what the output is held to; Engine.check_form has seen it

        Raises InvalidRequestError naming the field.
        """
        defaults = self.engine.generation_defaults
        model = {name: defaults[name] for name in DEFAULTED_FIELDS if defaults.get(name) is not None}
        params = SamplingParams(**{**model, **values, "structured_outputs": form})
        params.validate(self.vocab_size)
        return params
