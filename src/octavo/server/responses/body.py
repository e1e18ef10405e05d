"""ResponsesBody: the body of /v1/responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from octavo.errors import InvalidRequestError, did_you_mean
from octavo.server.body import Body, Int32, NumLogprobs
from octavo.server.described import Objects, TextOrObjects, ToolChoiceField
from octavo.server.json_values import wrong_value
from octavo.server.turn_fields import TurnFields, parse_turn_body

LOGPROBS = "message.output_text.logprobs"

INCLUDABLE = (
    LOGPROBS,
    "reasoning.encrypted_content",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)
"""What `include` may name. Reasoning is always there, in plain text; there are no items of the other kinds to be included."""

_STORED = "this server stores nothing; send the whole conversation as input"
_INSTEAD: Mapping[str, str] = {
    "previous_response_id": _STORED,
    "conversation": _STORED,
    "prompt": "this server stores no prompts; send instructions and input",
    "background": "an answer comes on the connection that asked for it; leave it out, and use stream: true for a long one",
    "context_management": "nothing is compacted; send a shorter input",
    "moderation": "this server judges no content",
    "messages": "the conversation is input",
    "response_format": "the form of the answer is text.format",
    "max_tokens": "the limit is max_output_tokens",
    "max_completion_tokens": "the limit is max_output_tokens",
    "logprobs": f'logprobs are asked for with include: ["{LOGPROBS}"]',
    "reasoning_effort": "the effort is reasoning.effort",
    "functions": "send tools",
    "function_call": "send tool_choice",
}


class Reasoning(Body):
    """effort is given to the chat template. summary may be "auto": the reasoning itself is in the answer, never a summary."""

    effort: Annotated[str, Field(max_length=32)] | None = None
    summary: str | None = None
    generate_summary: str | None = None


class TextOptions(Body):
    """format  {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "name": ..., "schema": {...}}"""

    format: dict[str, Any] | None = None
    verbosity: str | None = None


class ResponsesBody(TurnFields):
    """The body. Without max_output_tokens the answer may fill the context.

    input  a text, or a list of items: messages, calls of functions and their outputs, reasoning
    """

    input: TextOrObjects
    instructions: str | None = None
    tools: Objects = None
    tool_choice: ToolChoiceField = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    include: list[str] | None = None
    max_output_tokens: Int32 | None = None
    max_tool_calls: Int32 | None = None
    top_logprobs: NumLogprobs | None = None
    truncation: str | None = None
    metadata: dict[str, str] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @property
    def includes_logprobs(self) -> bool:
        return LOGPROBS in (self.include or ())


def read_body(raw: Mapping[str, Any]) -> ResponsesBody:
    """The raw JSON object, checked. Raises InvalidRequestError naming the field, with the way out."""
    body = parse_turn_body(ResponsesBody, raw, _INSTEAD)
    for index, name in enumerate(body.include or ()):
        if name not in INCLUDABLE:
            raise wrong_value(f"include[{index}]", name, ", ".join(INCLUDABLE) + did_you_mean(name, INCLUDABLE))
    if body.top_logprobs and not body.includes_logprobs:
        raise InvalidRequestError(f'top_logprobs needs include: ["{LOGPROBS}"]', param="top_logprobs")
    if body.truncation not in (None, "disabled"):
        raise wrong_value("truncation", body.truncation, "disabled: no input is ever cut, so send a shorter one")
    if body.text is not None and body.text.verbosity not in (None, "medium"):
        raise wrong_value("text.verbosity", body.text.verbosity, "medium; ask for a short or long answer in the instructions")
    reasoning = body.reasoning or Reasoning()
    for name in ("summary", "generate_summary"):
        asked = getattr(reasoning, name)
        if asked not in (None, "auto"):
            raise wrong_value(f"reasoning.{name}", asked, "auto: the answer has the reasoning, not a summary")
    if body.max_output_tokens is not None and body.max_output_tokens < 1:
        raise wrong_value("max_output_tokens", body.max_output_tokens, "at least 1")
    if body.stream_options is not None and not body.stream:
        raise InvalidRequestError("stream_options needs stream: true", param="stream_options")
    _check_metadata(body.metadata or {})
    return body


MAX_METADATA, MAX_METADATA_KEY, MAX_METADATA_VALUE = 16, 64, 512


def _check_metadata(metadata: Mapping[str, str]) -> None:
    """The answer repeats it, so it has OpenAI's limits."""
    if len(metadata) > MAX_METADATA:
        raise InvalidRequestError(f"metadata has {len(metadata)} keys; at most {MAX_METADATA} are allowed", param="metadata")
    if any(len(key) > MAX_METADATA_KEY or len(value) > MAX_METADATA_VALUE for key, value in metadata.items()):
        raise InvalidRequestError(
            f"metadata has a key of more than {MAX_METADATA_KEY} or a value of more than {MAX_METADATA_VALUE} characters",
            param="metadata",
        )
