"""ChatTemplate: messages to prompt text, as transformers' apply_chat_template renders them."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes

from octavo.errors import BusyError, ContextLengthError, InvalidRequestError, LoadError
from octavo.log import get_logger
from octavo.text.content_format import (
    ContentFormat,
    Message,
    accepts_string_content,
    detect_content_format,
    plain_data,
    prepare_messages,
)
from octavo.text.control_marks import ControlMarks
from octavo.text.jinja_env import make_environment
from octavo.text.library_faults import reason
from octavo.text.template_process import TemplateProcesses
from octavo.text.template_render import LocalRenderer, Renderer, TemplateFailed
from octavo.text.tokenizer import Tokenizer
from octavo.text.tool_arguments import has_calls, wants_text, with_arguments

MAX_SOURCE_CHARACTERS = 1 << 20
MAX_REQUEST_SOURCE = 1 << 16
"""Most characters of a template that comes with a request."""
_logger = get_logger(__name__)
_CONTINUE_TAG = "CONTINUE_FINAL_MESSAGE_TAG "
_RESERVED = frozenset(
    [
        *("messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template", "tokenize"),
        *("raise_exception", "strftime_now", "namespace", "range", "dict", "lipsum", "cycler", "joiner"),
    ]
)


@dataclass(frozen=True, slots=True)
class _Compiled:
    """One template, looked at: broken is why it cannot be used, "" for a good one.

    name  the renderer knows it by; None: it came with a request, and its source goes with the variables
    """

    name: str | None
    source: str
    broken: str
    content_format: ContentFormat
    takes_strings: bool
    knows_tools: bool
    marks: ControlMarks


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """text of the chat; mark, if any, is the character in it that breaks control-token text written by the user."""

    text: str
    mark: str | None


class ChatTemplate:
    """The chat template of a model, or its named templates ("default", "tool_use", ...). Safe to use from several threads."""

    def __init__(
        self,
        source: str | Mapping[str, str],
        special_tokens: Mapping[str, str],
        *,
        control_tokens: Iterable[str] = (),
        plain_tokens: Iterable[str] = (),
        origin: str = "chat template",
        clock: Callable[[], datetime] = datetime.now,
        isolated: bool = False,
        lenient: bool = False,
    ) -> None:
        """special_tokens: what templates know as bos_token, eos_token, ...; control_tokens: texts that user content must not
        produce; plain_tokens: other added tokens.

        isolated  render in a process of its own, within limits of time and memory
        lenient   a template that does not parse is warned of, and refused when it is used
        Raises LoadError for a template that does not parse, unless lenient.
        """
        self._special_tokens = dict(special_tokens)
        self._origin = origin
        self._clock = clock
        environment = make_environment(clock)
        sources = {"default": source} if isinstance(source, str) else dict(source)
        self._controls, self._plains = tuple(control_tokens), tuple(plain_tokens)
        self._templates = {name: self._look_at(environment, name, text) for name, text in sources.items()}
        for compiled in self._templates.values():
            if compiled.broken and not lenient:
                raise LoadError(compiled.broken)
            if compiled.broken:
                _logger.warning("%s; chats are refused where it is needed", compiled.broken)
        self._text_arguments: dict[str, bool] = {}
        self._renderer: Renderer = TemplateProcesses(sources) if isolated else LocalRenderer(sources)

    @classmethod
    def for_tokenizer(cls, tokenizer: Tokenizer, override: str | None = None) -> ChatTemplate:
        """The tokenizer's own template, or `override` (Jinja source given with --chat-template) instead of it."""
        special = tokenizer.special_token_ids
        return cls(
            tokenizer.spec.chat_templates if override is None else override,
            tokenizer.spec.special_tokens,
            control_tokens=[text for token_id, text in tokenizer.added_tokens.items() if token_id in special],
            plain_tokens=[text for token_id, text in tokenizer.added_tokens.items() if token_id not in special],
            origin=tokenizer.spec.source if override is None else "--chat-template",
            isolated=True,
            lenient=override is None,
        )

    def with_source(self, source: str) -> ChatTemplate:
        """Another template, such as one that comes with a request, rendered where this one is: it ends with this one.

        Raises InvalidRequestError if it is no template.
        """
        if not isinstance(source, str) or len(source) > MAX_REQUEST_SOURCE:
            found = f"has {len(source)} characters" if isinstance(source, str) else f"is of type {type(source).__name__}"
            raise InvalidRequestError(
                f"chat_template {found}; it must be a Jinja template of at most {MAX_REQUEST_SOURCE} characters",
                param="chat_template",
            )
        other = copy.copy(self)
        other._origin = "the request"
        compiled = other._look_at(make_environment(self._clock), None, source)
        if compiled.broken:
            raise InvalidRequestError(compiled.broken, param="chat_template")
        other._templates, other._text_arguments = {"default": compiled}, {}
        return other

    @property
    def source(self) -> str | None:
        """Jinja source of the template in force for chats without tools of their own template; None if there is none."""
        return self._templates["default"].source if "default" in self._templates else None

    def warm(self) -> None:
        """Start what the first rendering needs, without waiting for it."""
        if self.exists:
            self._renderer.warm()

    def close(self) -> None:
        """End the processes that render; what still renders fails. Safe to call twice."""
        self._renderer.close()

    @property
    def exists(self) -> bool:
        """False for a model without a template, such as a base model; rendering is then refused."""
        return bool(self._templates)

    @property
    def sources(self) -> dict[str, str]:
        """The templates by their names."""
        return {name: compiled.source for name, compiled in self._templates.items()}

    @property
    def knows_tools(self) -> bool:
        """Whether the template for requests with tools shows them; False without one."""
        compiled = self._templates.get("tool_use", self._templates.get("default"))
        return compiled is not None and compiled.knows_tools

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **extra: Any,
    ) -> str:
        """Prompt text of the conversation; see `render_chat`."""
        return self.render_chat(
            messages,
            tools=tools,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            extra=extra,
            protect=False,
        ).text

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        extra: Mapping[str, Any] | None = None,
        protect: bool = True,
        max_characters: int | None = None,
        content_format: ContentFormat | None = None,
    ) -> RenderedChat:
        """Render the conversation; with protect, user strings carry marks wherever they could yield a control token.

        continue_final_message leaves the last message open, so that the model goes on writing it. `extra` are further template
        variables. content_format is how messages hold their content; None: as the source of the template wants it. Raises
        InvalidRequestError for anything in the request the template cannot take, and ContextLengthError, before any work, when
        its texts have more than max_characters.
        """
        compiled = self._select(tools)
        _check_request(extra or {}, add_generation_prompt, continue_final_message)
        _check_documents(documents)
        takes_strings = compiled.takes_strings and content_format is None
        chat = prepare_messages(messages, content_format or compiled.content_format, takes_strings)
        if has_calls(chat):
            chat = plain_data(with_arguments(chat, as_text=self._wants_arguments_as_text(compiled)), "messages", -2)
        given = {"tools": None if tools is None else list(tools), "documents": None if documents is None else list(documents)}
        variables: dict[str, Any] = {name: plain_data(value, name) for name, value in {**given, **(extra or {})}.items()}
        if max_characters is not None:
            _require_size([*_strings(chat), *_strings(variables)], max_characters)
        mark: str | None = None
        if protect:
            chat, variables, mark = _mark_inputs(compiled, chat, variables)
        final = _open_final_message(chat, compiled.source) if continue_final_message else None
        variables = {**self._special_tokens, **variables, "add_generation_prompt": add_generation_prompt}
        text = self._run(compiled, chat, variables)
        if final is not None:
            text = _cut_at_final_message(text, final)
        return RenderedChat(text if mark is None else compiled.marks.restore(text, mark), mark)

    def _look_at(self, environment: jinja2.Environment, name: str | None, source: str) -> _Compiled:
        broken, tree = "", nodes.Template([])
        try:
            if len(source) > MAX_SOURCE_CHARACTERS:
                raise ValueError(f"{len(source)} characters, more than {MAX_SOURCE_CHARACTERS}")
            tree = environment.parse(source)
            environment.compile(source, raw=True)
        except (jinja2.TemplateError, RecursionError, ValueError, OverflowError, MemoryError) as error:
            shown = "chat_template" if name is None else f"chat template {name!r}"
            broken = f"{self._origin}: {shown} is not valid Jinja: {reason(error)}"
        literals = {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str) and node.value}
        marks = ControlMarks(self._controls, self._plains, literals)
        knows_tools = any(node.name == "tools" for node in tree.find_all(nodes.Name))
        wants, takes_strings = detect_content_format(tree), accepts_string_content(tree)
        return _Compiled(name, source, broken, wants, takes_strings, knows_tools, marks)

    def _select(self, tools: object) -> _Compiled:
        """The template for this request: "tool_use" if there are tools and such a template, else "default"."""
        name = "tool_use" if tools is not None and "tool_use" in self._templates else "default"
        if name in self._templates:
            compiled = self._templates[name]
            if compiled.broken:
                raise InvalidRequestError(
                    f"{compiled.broken}; start with --chat-template FILE or use /v1/completions",
                    param="messages",
                    code="no_chat_template",
                )
            return compiled
        known = f"; it has only the named templates {', '.join(sorted(self._templates))}" if self._templates else ""
        raise InvalidRequestError(
            f"this model has no default chat template{known}; start with --chat-template FILE or use /v1/completions",
            param="messages",
            code="no_chat_template",
        )

    def _wants_arguments_as_text(self, compiled: _Compiled) -> bool:
        """Found out when the template is first given a call."""
        name = compiled.name or ""
        known = self._text_arguments.get(name)
        if known is None:

            def render(chat: list[Message]) -> str | None:
                try:
                    messages = prepare_messages(chat, compiled.content_format, compiled.takes_strings)
                    variables = {**self._special_tokens, "tools": None, "documents": None, "add_generation_prompt": False}
                    return self._render(compiled, {**variables, "messages": messages})
                except TemplateFailed:
                    return None

            known = self._text_arguments[name] = wants_text(render)
        return known

    def _render(self, compiled: _Compiled, variables: Mapping[str, Any]) -> str:
        source = compiled.source if compiled.name is None else None
        return self._renderer.render(compiled.name or "", variables, self._clock(), source)

    def _run(self, compiled: _Compiled, chat: list[Message], variables: Mapping[str, Any]) -> str:
        try:
            return self._render(compiled, {**variables, "messages": chat})
        except TemplateFailed as error:
            if error.kind == "busy":
                raise BusyError(error.reason) from None
            said = {
                "raised": f"the chat template refused the messages: {error.reason}",
                "large": f"{error.reason}; send fewer or shorter messages",
            }
            raise InvalidRequestError(said.get(error.kind, error.reason), param="messages") from None


def _check_documents(documents: object) -> None:
    if documents is not None and (isinstance(documents, (str, bytes)) or not isinstance(documents, Sequence)):
        raise InvalidRequestError(f"documents must be a list of objects, not {type(documents).__name__}", param="documents")


def _check_request(extra: object, add_generation_prompt: bool, continue_final_message: bool) -> None:
    if not isinstance(extra, Mapping) or not all(isinstance(name, str) for name in extra):
        raise InvalidRequestError(
            f"chat_template_kwargs must be an object with names as keys, not {str(extra)[:100]}", param="chat_template_kwargs"
        )
    clash = sorted(_RESERVED.intersection(extra))
    if clash:
        raise InvalidRequestError(
            f"chat_template_kwargs may not set {', '.join(clash)}; use the request field of that name",
            param="chat_template_kwargs",
        )
    if continue_final_message and add_generation_prompt:
        raise InvalidRequestError(
            "continue_final_message and add_generation_prompt cannot both be true: the first goes on writing the last message, "
            "the second starts a new one",
            param="continue_final_message",
        )


def _require_size(texts: list[str], most: int) -> None:
    size = sum(map(len, texts))
    if size > most:
        raise ContextLengthError(
            f"messages, tools and template variables have {size} characters; no prompt that fits has more than {most}",
            param="messages",
        )


def _mark_inputs(
    compiled: _Compiled, chat: list[Message], variables: dict[str, Any]
) -> tuple[list[Message], dict[str, Any], str | None]:
    """chat and variables with marks, and the mark; None if there was nothing to mark."""
    marks = compiled.marks
    mark = marks.choose_mark([compiled.source, *_strings(chat), *_strings(variables)])
    marked_chat = marks.mark_data(chat, mark)
    marked_variables = {name: marks.mark_data(value, mark) for name, value in variables.items()}
    changed = marked_chat != chat or marked_variables != variables
    return marked_chat, marked_variables, mark if changed else None


def _strings(value: Any) -> Iterable[str]:
    """All strings in plain data, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _open_final_message(chat: list[Message], source: str) -> str:
    """Append the tag to the last message's text; returns that text without it."""
    final = chat[-1].get("content")
    if final is None or "content" not in source:
        raise InvalidRequestError("continue_final_message: the final message has no content to continue", param="messages")
    if isinstance(final, str):
        chat[-1]["content"] = final + _CONTINUE_TAG
        return final
    for part in reversed(final):
        text: str = part["text"]
        part["text"] = text + _CONTINUE_TAG
        return text
    raise InvalidRequestError("continue_final_message: the final message has no text to continue", param="messages")


def _cut_at_final_message(rendered: str, final: str) -> str:
    """Drop all that the template wrote after the final message's text."""
    tag = _CONTINUE_TAG.strip()
    if final.strip() not in rendered or tag not in rendered:
        raise InvalidRequestError(
            "continue_final_message: the chat template does not render the final message unchanged, so it cannot be continued",
            param="continue_final_message",
        )
    at = rendered.rindex(tag)
    if rendered[at : at + len(_CONTINUE_TAG)] == _CONTINUE_TAG:
        return rendered[:at]
    return re.sub(r"\s+\Z", "", rendered[:at])
