"""MessagesBody: the body of /v1/messages, and the part of it that /v1/messages/count_tokens takes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field

from octavo.request import MAX_TENANT_LENGTH
from octavo.server.body import Body, Int32
from octavo.server.described import ObjectChoice, Objects, OptionalTextOrObjects, Turns
from octavo.server.json_values import wrong_value
from octavo.server.turn_fields import TurnFields, parse_turn_body, without_refused

THINKING = {"enabled": True, "adaptive": True, "disabled": False}
"""Kind of thinking that is asked for -> whether the chat template is to let the model think."""

IGNORED = frozenset(
    {"cache_control", "inference_geo", "diagnostics", "speed", "user_profile_id", "workspace_id", "anthropic_version", "betas"}
)
"""Bookkeeping of Anthropic's own service that cannot change what is generated here."""

_INSTEAD: Mapping[str, str] = {
    "stop": "the texts that end an answer are stop_sequences",
    "container": "this server runs no code",
    "mcp_servers": "this server calls no tools; send them as tools, and the client does the work",
    "context_management": "nothing is compacted; send fewer messages",
    "output_format": "the form of the answer is output_config.format",
    "max_completion_tokens": "the limit is max_tokens",
    "max_tokens_to_sample": "the limit is max_tokens",
    "functions": "send tools",
    "response_format": "the form of the answer is output_config.format",
}


class Metadata(Body):
    """user_id: whose request it is, where no list of API keys says so."""

    user_id: str | None = None


class Thinking(Body):
    """type  enabled, adaptive or disabled. budget_tokens is for models that are told of it; nothing is cut off at it.
    display  may be "summarized": thinking is shown, in full"""

    type: str
    budget_tokens: Int32 | None = None
    display: str | None = None


class OutputConfig(Body):
    """format  {"type": "json_schema", "schema": {...}}; effort is given to the chat template."""

    format: dict[str, Any] | None = None
    effort: Annotated[str, Field(max_length=32)] | None = None


def _without_stop(schema: dict[str, Any]) -> None:
    without_refused(schema)
    del schema["properties"]["stop"]


class CountTokensBody(TurnFields):
    """What makes the prompt."""

    model_config = ConfigDict(json_schema_extra=_without_stop)

    messages: Turns
    system: OptionalTextOrObjects = None
    tools: Objects = None
    tool_choice: ObjectChoice = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class MessagesBody(CountTokensBody):
    """The whole body. max_tokens is required, as everywhere in this protocol."""

    max_tokens: Int32
    stop_sequences: list[str] | None = None
    metadata: Metadata | None = None

    @property
    def tenant(self) -> str | None:
        """metadata.user_id; a long one as its SHA-256, which is as good a name."""
        user_id = None if self.metadata is None else self.metadata.user_id
        if user_id is None or len(user_id) <= MAX_TENANT_LENGTH:
            return user_id or self.user
        return hashlib.sha256(user_id.encode()).hexdigest()


CountT = TypeVar("CountT", bound=CountTokensBody)


def read_body(kind: type[CountT], raw: Mapping[str, Any]) -> CountT:
    """The raw JSON object, checked. Raises InvalidRequestError naming the field, with the way out."""
    body = parse_turn_body(kind, {name: value for name, value in raw.items() if name not in IGNORED}, _INSTEAD)
    thinking = body.thinking
    if thinking is not None and thinking.type not in THINKING:
        raise wrong_value("thinking.type", thinking.type, ", ".join(THINKING))
    if thinking is not None and thinking.display not in (None, "summarized"):
        raise wrong_value("thinking.display", thinking.display, "summarized; thinking of type disabled leaves it out")
    if isinstance(body, MessagesBody) and body.max_tokens < 1:
        raise wrong_value("max_tokens", body.max_tokens, "at least 1")
    return body
