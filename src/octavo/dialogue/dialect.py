"""Dialect: how one model writes reasoning and calls; chosen by its chat template, or by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from octavo.dialogue import bare, deepseek, harmony, hermes, mistral, qwen_coder
from octavo.dialogue.forms import BARE_FORM, HERMES_FORM, CallForm
from octavo.dialogue.reasoning import MISTRAL_THINK, THINK, THINK_ALWAYS, ReasoningTags, read_reasoning
from octavo.dialogue.sink import Sink, new_call_id, new_short_id
from octavo.dialogue.source import Reader, Source
from octavo.dialogue.stream import MessageStream
from octavo.dialogue.tools import Tools
from octavo.errors import ConfigError, did_you_mean

CallReader = Callable[[Source, Sink, Tools], Reader[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """How calls are written.

    sign     what stands in the chat template of a model that writes so (a regex); "": in none
    markers  texts that are control tokens in some vocabularies
    form     how a call is written under a grammar. It may be another form than the model's own where that needs control tokens;
             `read_form` reads it
    has_short_ids  ids of calls have nine letters and digits
    """

    name: str
    about: str
    sign: str
    read: CallReader
    form: CallForm = HERMES_FORM
    read_form: CallReader = hermes.read_hermes
    markers: tuple[str, ...] = (hermes.BEGIN, hermes.END)
    has_short_ids: bool = False

    @property
    def can_be_announced(self) -> bool:
        """Whether a grammar can tell the model's own calls from text, so that it holds calls alone to a form."""
        return bool(self.form.trigger) and hermes.BEGIN in self.markers


GENERIC = ToolFormat(
    name="generic",
    about="JSON that is the answer, or stands between <tool_call> tags; any model",
    sign="",
    read=bare.read_generic,
)
TOOL_FORMATS = {
    entry.name: entry
    for entry in (
        ToolFormat(
            name="mistral",
            about="[TOOL_CALLS] and a list, or name[ARGS]{...}: Mistral, Ministral, Magistral",
            sign=r"\[TOOL_CALLS\]",
            read=mistral.read_mistral,
            markers=(mistral.BEGIN, mistral.CALL_ID, mistral.ARGS),
            has_short_ids=True,
        ),
        ToolFormat(
            name="openai",
            about="channels of harmony: gpt-oss",
            sign=r"<\|channel\|>",
            read=harmony.read_harmony,
            markers=harmony.MARKERS,
        ),
        ToolFormat(
            name="deepseek_v3",
            about="<｜tool▁calls▁begin｜>: DeepSeek V3, V3.1, R1",
            sign=re.escape(deepseek.BEGIN),
            read=deepseek.read_deepseek,
            markers=deepseek.MARKERS,
        ),
        ToolFormat(
            name="qwen3_coder",
            about="<function=name><parameter=key>: Qwen3-Coder",
            sign="<function=",
            read=qwen_coder.read_qwen_coder,
        ),
        ToolFormat(
            name="hermes",
            about='<tool_call>{"name", "arguments"}</tool_call>: Hermes, Qwen 2.5, Qwen 3',
            sign="<tool_call>",
            read=hermes.read_hermes,
        ),
        ToolFormat(
            name="llama3_json",
            about='{"name", "parameters"}, perhaps behind <|python_tag|>: Llama 3',
            sign=r"<\|python_tag\|>|<\|start_header_id\|>",
            read=bare.read_llama,
            form=BARE_FORM,
            read_form=bare.read_llama,
            markers=(bare.PYTHON_TAG,),
        ),
        ToolFormat(
            name="gemma",
            about="JSON or Python, in a fence or not: Gemma",
            sign="<start_of_turn>",
            read=bare.read_gemma,
            form=BARE_FORM,
            read_form=bare.read_llama,
        ),
        GENERIC,
    )
}
"""In the order in which templates are searched for their signs."""

REASONING = {
    "qwen3": (THINK, "<think>, where the answer or the prompt opens it: Qwen 3, SmolLM3 and others"),
    "deepseek_r1": (THINK_ALWAYS, "as qwen3, but the answer begins inside: DeepSeek R1"),
    "mistral": (MISTRAL_THINK, "[THINK]: Magistral"),
    "openai_gptoss": (None, "the channel analysis of harmony: gpt-oss"),
    "none": (None, "reasoning stays in the content"),
}
_NO_SYSTEM = r"(?i)system role (is )?not supported|no system (role|message)"
"""What templates say to a system message that they refuse."""
TOOL_ALIASES = {
    "qwen3_xml": "qwen3_coder",
    "llama4_json": "llama3_json",
    "deepseek_v31": "deepseek_v3",
    "pythonic": "gemma",
}
REASONING_ALIASES = {"glm45": "qwen3", "deepseek_v3": "qwen3", "gpt_oss": "openai_gptoss"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """tool_format; reasoning: its tags, None for a model without; what the chat template shows by itself."""

    tool_format: ToolFormat
    reasoning: ReasoningTags | None
    template_knows_tools: bool
    template_knows_system: bool

    @property
    def is_harmony(self) -> bool:
        return self.tool_format.name == "openai"

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that have to be seen although they may be control tokens."""
        tags = self.reasoning
        return (*self.tool_format.markers, *(() if tags is None else (tags.begin, tags.end)))

    def stream(
        self,
        tools: Tools | None,
        *,
        is_held_to_form: bool = False,
        splits_reasoning: bool = True,
        starts_inside: bool = False,
        max_calls: int | None = None,
        hidden: tuple[str, ...] = (),
    ) -> MessageStream | None:
        """What takes one answer apart; None where there is nothing to look for, and the text is the content.

        tools            None: calls are not looked for
        is_held_to_form  a grammar makes every call well formed
        starts_inside    the prompt has opened a block of reasoning
        hidden           see Sink
        """
        tags = self.reasoning if splits_reasoning else None
        read_calls: CallReader | None = None
        if self.is_harmony and not (is_held_to_form and tools is not None):
            read_calls = self.tool_format.read
        elif tools is not None:
            read_calls = self.tool_format.read_form if is_held_to_form else self.tool_format.read
        if read_calls is None and tags is None:
            return None
        known = tools or Tools(())
        max_calls = 0 if tools is None else max_calls

        def read(source: Source, sink: Sink) -> Reader[None]:
            if tags is not None:
                yield from read_reasoning(source, sink, tags, is_inside=starts_inside)
            if read_calls is not None:
                yield from read_calls(source, sink, known)
            else:
                yield from source.copy_until(sink.content, (), drops=sink.hidden)

        make_id = new_short_id if self.tool_format.has_short_ids else new_call_id
        sink = Sink(streams_calls=is_held_to_form, max_calls=max_calls, hidden=hidden, make_id=make_id)
        return MessageStream(read, sink)


def choose_dialect(
    templates: Mapping[str, str], *, knows_tools: bool, tool_parser: str | None = None, reasoning_parser: str | None = None
) -> Dialect:
    """The dialect that a model's chat templates show, or the one that is named. Raises ConfigError for an unknown name."""
    source = "\n".join(templates.values())
    dialect = Dialect(
        tool_format=next((entry for entry in TOOL_FORMATS.values() if entry.sign and re.search(entry.sign, source)), GENERIC),
        reasoning=MISTRAL_THINK if MISTRAL_THINK.begin in source else THINK if THINK.begin in source else None,
        template_knows_tools=knows_tools,
        template_knows_system=re.search(_NO_SYSTEM, source) is None,
    )
    if tool_parser:
        name = _known(tool_parser, "tool_call_parser", TOOL_ALIASES, tuple(TOOL_FORMATS))
        dialect = replace(dialect, tool_format=TOOL_FORMATS[name])
    if reasoning_parser:
        name = _known(reasoning_parser, "reasoning_parser", REASONING_ALIASES, tuple(REASONING))
        dialect = replace(dialect, reasoning=REASONING[name][0])
    return replace(dialect, reasoning=None) if dialect.is_harmony else dialect


def _known(given: str, field: str, aliases: Mapping[str, str], names: tuple[str, ...]) -> str:
    name = aliases.get(given, given)
    if name not in names:
        known = sorted((*names, *aliases))
        raise ConfigError(
            f"--{field.replace('_', '-')} is {given[:100]!r}; it must be one of {', '.join(known)}{did_you_mean(given, known)}",
            param=field,
        )
    return name
