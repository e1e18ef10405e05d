"""TemplateFields: what turns a conversation into a prompt; chat bodies and /tokenize share it."""

from __future__ import annotations

import asyncio
from typing import Any

from octavo.errors import InvalidRequestError
from octavo.server.context import ServerContext
from octavo.server.openai.body import Body
from octavo.server.openai.messages import read_messages, read_tools
from octavo.text.chat_encoding import encode_chat


class TemplateFields(Body):
    """messages and the switches of the chat template."""

    messages: Any
    tools: Any = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


async def render(body: TemplateFields, context: ServerContext, max_tokens: int) -> list[int]:
    """Token ids of the conversation, which may be refused early when there are clearly more than max_tokens.

    In a thread, as templates and tokenizers may take their time with long ones.
    """
    sources = context.engine.tokenizer.spec.chat_templates.values()
    messages = read_messages(body.messages, template_knows_developer=any("developer" in source for source in sources))
    continues = bool(body.continue_final_message)
    if body.add_generation_prompt and continues:
        raise InvalidRequestError(
            "add_generation_prompt and continue_final_message exclude each other", param="continue_final_message"
        )
    return await asyncio.to_thread(
        encode_chat,
        context.engine.tokenizer,
        context.engine.chat_template,
        messages,
        tools=read_tools(body.tools) or None if body.tools is not None else None,
        add_generation_prompt=body.add_generation_prompt is not False and not continues,
        continue_final_message=continues,
        template_kwargs=body.chat_template_kwargs,
        max_tokens=max_tokens,
    )
