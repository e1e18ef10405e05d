"""ChatTurn: one turn of a conversation, from the checked request to what the model said. It knows no protocol's names.

body of a protocol -> ChatRequest -> begin_turn -> ChatTurn: run, deltas | collect, whole messages -> answer of the protocol
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from octavo.dialogue.calls import MessageDelta, ToolCall, ToolCallDelta, join_calls
from octavo.dialogue.stream import MessageStream
from octavo.dialogue.tools import Tools
from octavo.engine.frontend.beam_search import BeamSearchParams
from octavo.engine.frontend.logprobs import PositionLogprobs
from octavo.engine.frontend.outputs import CompletionOutput
from octavo.errors import InvalidRequestError
from octavo.request import NO_OPTIONS, RequestOptions
from octavo.sampling_params import RequestOutputKind
from octavo.server.service.beams import BeamGeneration
from octavo.server.service.generation import EncodedPrompt, Generation, Usage
from octavo.server.service.service import Service
from octavo.server.service.tool_plan import ToolChoice, ToolPlan
from octavo.structured_outputs import StructuredOutputsParams
from octavo.text.truncation import Truncation

MAX_COUNTED = 65536
"""Most tokens of a prompt that are counted when the context is shorter: a second of work."""
PROMPT_END_TOKENS = 16
"""Enough of a prompt's end to see whether it opened a block of reasoning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOptions:
    """Switches of the chat template.

    kwargs              further variables for it
    documents           what it is to show the model besides the conversation, if it knows how
    source              another template that the request brings, in Jinja; refused where the server does not trust requests so
    add_special_tokens  put BOS and EOS around as for a plain text, unless the template has
    """

    add_generation_prompt: bool = True
    continue_final_message: bool = False
    kwargs: Mapping[str, Any] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    source: str | None = None
    add_special_tokens: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What a client asks for.

    messages          each with role and content (a text, or a list of {"type": "text", "text"}), and, where given, name,
                      tool_calls, tool_call_id, reasoning_content
    tools             {"type": "function", "function": {"name", "description", "parameters", "strict"}} each
    form              the form that is asked for, already checked by Service.engine.check_form
    sampling          those fields of SamplingParams that the request gives, but structured_outputs
    splits_reasoning  take the model's reasoning out of the content
    truncation        how a long prompt is cut; None: it is refused
    beams             the answers are those of this beam search, which reads no field of sampling; it cannot be streamed
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    template: TemplateOptions = TemplateOptions()
    form: StructuredOutputsParams | None = None
    sampling: Mapping[str, Any]
    options: RequestOptions = NO_OPTIONS
    splits_reasoning: bool = True
    truncation: Truncation | None = None
    beams: BeamSearchParams | None = None


@dataclass(slots=True, kw_only=True)
class ChoiceDelta:
    """What is new of one choice. An empty one (no text, no call, no logprobs, no end) says that it is under way.

    tool_calls     in order; see ToolCallDelta
    logprobs       of all new tokens, those of reasoning and calls, too; None unless asked for
    finish_reason  "stop", "length", "tool_calls" (a call was completed); None while it runs
    stop_reason    see CompletionOutput
    """

    index: int
    reasoning: str = ""
    content: str = ""
    tool_calls: list[ToolCallDelta] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[PositionLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    @property
    def is_empty(self) -> bool:
        has_text = self.reasoning or self.content or self.tool_calls
        return not has_text and self.finish_reason is None and not self.logprobs


@dataclass(slots=True, kw_only=True)
class ChoiceMessage:
    """One whole choice: the join of its deltas. reasoning and content are None where there is nothing beside something else."""

    index: int
    reasoning: str | None
    content: str | None
    tool_calls: list[ToolCall]
    token_ids: list[int]
    logprobs: list[PositionLogprobs] | None
    finish_reason: str | None
    stop_reason: int | str | None


class ReasoningCount:
    """Counts the tokens of one choice up to the one that ends its reasoning, that one included."""

    def __init__(self, end_id: int | None) -> None:
        self.count = 0
        self._end_id = end_id
        self._is_over = False

    def push(self, token_ids: Sequence[int]) -> None:
        if self._end_id is None or self._is_over:
            return
        self._is_over = self._end_id in token_ids
        self.count += token_ids.index(self._end_id) + 1 if self._is_over else len(token_ids)


class ChatTurn:
    """A turn that may run, once: streamed or whole.

    make_stream       what takes one choice apart, made for each; None for one whose text is its content
    reasoning_end_id  the token that ends reasoning, where one token does: then usage counts the tokens up to it
    generation        the request id, and the usage so far
    last_message      the one that is answered, or continued
    beams             what runs instead of the generation, and counts into its usage
    prompt_logprobs   one entry per prompt token where they were asked for, known when the first output is
    """

    def __init__(
        self,
        service: Service,
        generation: Generation,
        make_stream: Callable[[], MessageStream | None],
        reasoning_end_id: int | None = None,
        *,
        last_message: Mapping[str, Any] | None = None,
        beams: BeamGeneration | None = None,
    ) -> None:
        self.generation = generation
        self.last_message = last_message or {}
        self._source = beams or generation
        if reasoning_end_id is not None:
            generation.usage.reasoning_tokens = 0
        self._reasoning = [ReasoningCount(reasoning_end_id) for _ in range(generation.n)]
        self._streams = [make_stream() for _ in range(generation.n)]
        self.prompt_logprobs: list[PositionLogprobs | None] | None = None
        self._engine = service.engine

    @property
    def usage(self) -> Usage:
        return self.generation.usage

    async def run(self) -> AsyncGenerator[list[ChoiceDelta], None]:
        """One list per output of the engine, with a delta for each choice that has news. Closing it aborts the request.

        Raises: what Generation.run raises.
        """
        async with aclosing(self._outputs(RequestOutputKind.DELTA)) as outputs:
            async for choices in outputs:
                yield [self._delta(choice) for choice in choices]

    async def collect(self) -> list[ChoiceMessage]:
        """Run to the end: all choices in order. Raises what Generation.run raises."""
        deltas: dict[int, list[ChoiceDelta]] = {}
        async with aclosing(self._outputs(RequestOutputKind.FINAL_ONLY)) as outputs:
            async for choices in outputs:
                for choice in choices:
                    deltas.setdefault(choice.index, []).append(self._delta(choice))
        return [_join(deltas[index]) for index in sorted(deltas)]

    async def _outputs(self, kind: RequestOutputKind) -> AsyncGenerator[list[CompletionOutput], None]:
        async with aclosing(self._source.run(self._engine, kind)) as outputs:
            async for _, output in outputs:
                if output.prompt_logprobs is not None:
                    self.prompt_logprobs = output.prompt_logprobs
                yield output.outputs

    def _delta(self, choice: CompletionOutput) -> ChoiceDelta:
        delta = ChoiceDelta(
            index=choice.index,
            token_ids=choice.token_ids,
            logprobs=choice.logprobs,
            finish_reason=choice.finish_reason,
            stop_reason=choice.stop_reason,
        )
        stream = self._streams[choice.index]
        if stream is None:
            delta.content = choice.text
            return delta
        self._reasoning[choice.index].push(choice.token_ids)
        _add(delta, stream.push(choice.text))
        if choice.finish_reason is not None:
            _add(delta, stream.finish())
            if choice.finish_reason == "stop" and stream.made_calls:
                delta.finish_reason = "tool_calls"
            if self.usage.reasoning_tokens is not None and stream.has_reasoned:
                self.usage.reasoning_tokens += self._reasoning[choice.index].count
        return delta


async def begin_turn(service: Service, request: ChatRequest, request_id: str) -> ChatTurn:
    """The turn, ready to run. Everything that can be refused raises here: InvalidRequestError naming the field."""
    service.require_text_model()
    dialect, tokenizer = service.dialect, service.engine.tokenizer
    controls = tokenizer.control_ids(dialect.markers)
    plan = ToolPlan(
        dialect,
        Tools(request.tools),
        request.tool_choice,
        parallel=request.parallel_tool_calls,
        text=request.form,
        control_markers=tuple(controls),
    )
    token_ids = await _encode(service, request, plan, service.max_model_len)
    service.require_room(len(token_ids), "messages")
    prompt_end = tokenizer.decode(token_ids[-PROMPT_END_TOKENS:], skip_special_tokens=False)
    form = await plan.form(service.engine, prompt_end)
    params = service.sampling_params({**request.sampling, **({} if form is None else {"structured_outputs": form})})
    hidden = tuple(controls) if params.skip_special_tokens else ()
    make_stream = partial(plan.stream, prompt_end, splits_reasoning=request.splits_reasoning, hidden=hidden)
    if hidden and make_stream() is not None:
        params.shown_token_ids = list(controls.values())
    generation = Generation(
        request_id=request_id, prompts=[EncodedPrompt(None, token_ids)], params=params, options=request.options
    )
    beams = None
    if request.beams is not None:
        if form is not None:
            raise InvalidRequestError(
                "use_beam_search does not go with tools that are to be called; set tool_choice to none", param="tool_choice"
            )
        beams = BeamGeneration.instead_of(generation, request.beams, service)
    end = None if dialect.reasoning is None or not request.splits_reasoning else dialect.reasoning.end
    end_id = None if end is None else tokenizer.added_id(end)
    return ChatTurn(service, generation, make_stream, end_id, last_message=request.messages[-1], beams=beams)


async def count_prompt(service: Service, request: ChatRequest, max_tokens: int) -> int:
    """Tokens of the prompt that begin_turn would make, also where it is too long for the context.

    Raises InvalidRequestError as begin_turn does, and where there are clearly more than max_tokens.
    """
    service.require_text_model()
    tools, parallel = Tools(request.tools), request.parallel_tool_calls
    plan = ToolPlan(service.dialect, tools, request.tool_choice, parallel=parallel, text=request.form)
    return len(await _encode(service, request, plan, max_tokens))


async def _encode(service: Service, request: ChatRequest, plan: ToolPlan, max_tokens: int) -> list[int]:
    """Token ids of the prompt, with the tools that the model is to be told of."""
    tools = request.tools if plan.shows_tools else ()
    return await encode_conversation(service, request.messages, tools, request.template, max_tokens, request.truncation)



def _add(delta: ChoiceDelta, news: MessageDelta) -> None:
    delta.reasoning += news.reasoning
    delta.content += news.content
    delta.tool_calls += news.tool_calls


async def encode_conversation(
    service: Service,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    template: TemplateOptions,
    max_tokens: int,
    truncation: Truncation | None = None,
) -> list[int]:
    """Token ids of the prompt; see Service.encode_chat."""
    return await service.encode_chat(
        messages,
        max_tokens,
        tools=tools or None,
        add_generation_prompt=template.add_generation_prompt,
        continue_final_message=template.continue_final_message,
        template_kwargs=template.kwargs,
        documents=template.documents,
        chat_template=template.source,
        add_special_tokens=template.add_special_tokens,
        truncation=truncation,
    )


def _join(deltas: list[ChoiceDelta]) -> ChoiceMessage:
    last = deltas[-1]
    reasoning = "".join(delta.reasoning for delta in deltas)
    content = "".join(delta.content for delta in deltas)
    calls = join_calls([call for delta in deltas for call in delta.tool_calls])
    logprobs = None if last.logprobs is None else [entry for delta in deltas for entry in delta.logprobs or ()]
    return ChoiceMessage(
        index=last.index,
        reasoning=reasoning or None,
        content=content if content or not (reasoning or calls) else None,
        tool_calls=calls,
        token_ids=[token_id for delta in deltas for token_id in delta.token_ids],
        logprobs=logprobs,
        finish_reason=last.finish_reason,
        stop_reason=last.stop_reason,
    )
