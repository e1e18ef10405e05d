"""TemplateFields: what turns a conversation into a prompt; chat bodies and /tokenize share it."""

from __future__ import annotations

from typing import Any

from octavo.errors import InvalidRequestError
from octavo.server.body import Body
from octavo.server.openai.messages import read_messages, read_tools
from octavo.server.service.service import Service


class TemplateFields(Body):
    """messages and the switches of the chat template."""

    messages: Any
    tools: Any = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


async def render(body: TemplateFields, service: Service, max_tokens: int) -> list[int]:
    """Token ids of the conversation, which may be refused early when there are clearly more than max_tokens."""
    messages = read_messages(body.messages, template_knows_developer=service.template_knows_developer)
    continues = bool(body.continue_final_message)
    if body.add_generation_prompt and continues:
        raise InvalidRequestError(
            "add_generation_prompt and continue_final_message exclude each other", param="continue_final_message"
        )
    return await service.encode_chat(
        messages,
        max_tokens,
        tools=read_tools(body.tools) or None if body.tools is not None else None,
        add_generation_prompt=body.add_generation_prompt is not False and not continues,
        continue_final_message=continues,
        template_kwargs=body.chat_template_kwargs,
    )
