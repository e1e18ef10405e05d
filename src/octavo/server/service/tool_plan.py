"""ToolPlan: what a request's tools, their choice, its form and the model's reasoning come to: a reader and a grammar."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from octavo.dialogue.dialect import Dialect
from octavo.dialogue.forms import Element, after_reasoning, as_params, possible_calls, required_calls, text_form
from octavo.dialogue.reasoning import ReasoningTags
from octavo.dialogue.stream import MessageStream
from octavo.dialogue.tools import Tools
from octavo.errors import InvalidRequestError
from octavo.server.service.engine_face import Engine
from octavo.structured_outputs import StructuredOutputsParams

_PLACE = re.compile(r"structured_outputs\.structural_tag(\.format[\w.\[\]]*?\.tags\[(?P<index>\d+)\][\w.\[\]]*)?")


@dataclass(frozen=True, slots=True)
class NamedTool:
    """A tool_choice: the answer is one call of this tool."""

    name: str


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class ToolPlan:
    """Checked when it is made: InvalidRequestError names the field.

    tools            None where no calls are looked for
    text             the form of an answer without calls, which Engine.check_form has seen
    control_markers  those of the dialect's markers that are control tokens: a grammar cannot spell them
    """

    def __init__(
        self,
        dialect: Dialect,
        tools: Tools,
        choice: ToolChoice,
        *,
        parallel: bool,
        text: StructuredOutputsParams | None = None,
        control_markers: tuple[str, ...] = (),
    ) -> None:
        self._dialect = dialect
        self._text = text
        self._answer = None if text is None else text_form(text)
        self._control_markers = control_markers
        self._choice: ToolChoice = choice if tools.given or choice == "none" else _without_tools(choice)
        self._parallel = parallel and not isinstance(choice, NamedTool)
        self.tools = None if self._choice == "none" else tools
        self._functions = list(enumerate(tools.functions()))
        if isinstance(choice, NamedTool):
            self._functions = [(index, function) for index, function in self._functions if function["name"] == choice.name]
            if not self._functions:
                known = ", ".join(sorted(tools.names)[:20])
                raise InvalidRequestError(
                    f"tool_choice names {choice.name[:64]!r}, which is none of the tools: {known}", param="tool_choice"
                )

    @property
    def shows_tools(self) -> bool:
        """Whether the model is told of the tools. A template that knows them is, even if none may be called, as in vLLM."""
        return self.tools is not None or self._dialect.template_knows_tools

    def stream(self, prompt_end: str, *, splits_reasoning: bool, hidden: tuple[str, ...]) -> MessageStream | None:
        """What takes one answer apart; see Dialect.stream."""
        tags = self._tags
        return self._dialect.stream(
            self.tools,
            is_held_to_form=self._is_held,
            splits_reasoning=splits_reasoning and tags is not None,
            starts_inside=tags is not None and tags.starts_inside(prompt_end),
            max_calls=None if self._parallel else 1,
            hidden=hidden,
        )

    async def form(self, engine: Engine, prompt_end: str) -> StructuredOutputsParams | None:
        """What the whole output is held to. Raises InvalidRequestError naming the tool whose parameters no grammar can have."""
        held, text, tags = self._element(), self._text, self._tags
        if held is None:
            return text
        if tags is not None and not tags.is_over(prompt_end):
            held = after_reasoning(held, tags, is_inside=tags.starts_inside(prompt_end))
        elif not self._is_held:
            return text
        form = as_params(held, text)
        try:
            await engine.check_form(form)
        except InvalidRequestError as error:
            raise self._explained(error) from None
        return form

    @property
    def _is_held(self) -> bool:
        """Whether a grammar makes every call well formed."""
        if self.tools is None:
            return False
        if self._choice != "auto":
            return True
        has_strict = any(function.get("strict") for _, function in self._functions)
        stands_alone = self._text is not None and self._answer is None
        return has_strict and self._dialect.tool_format.can_be_announced and not stands_alone

    @property
    def _tags(self) -> ReasoningTags | None:
        """The tags of the reasoning in this answer.

        There is none before a form that cannot be a part of another one, or whose grammar cannot spell the tags.
        """
        tags = self._dialect.reasoning
        if tags is None or (self._text is None and not self._is_held):
            return tags
        return None if self._element() is None or tags.end in self._control_markers else tags

    def _element(self) -> Element | None:
        """The form of an answer without its reasoning; None if it has none, or only one that stands by itself."""
        if not self._is_held:
            return self._answer
        functions = [function for _, function in self._functions]
        form = self._dialect.tool_format.form
        calls = required_calls(form, functions, several=self._parallel)
        if self._choice != "auto":
            return calls
        if self._answer is None:
            return possible_calls(form, functions, several=self._parallel)
        return {"type": "or", "elements": [self._answer, calls]}

    def _explained(self, error: InvalidRequestError) -> InvalidRequestError:
        """The error in the words of the request: a place in the structural tag is the parameters of a tool, or the tools."""

        def field(place: re.Match[str]) -> str:
            if place["index"] is None:
                return "tools"
            return f"tools[{self._functions[int(place['index'])][0]}].function.parameters"

        return InvalidRequestError(
            _PLACE.sub(field, error.message), param=_PLACE.sub(field, error.param or "tools"), code=error.code
        )


def _without_tools(choice: ToolChoice) -> ToolChoice:
    if choice != "auto":
        raise InvalidRequestError("tool_choice needs tools", param="tool_choice")
    return "none"
