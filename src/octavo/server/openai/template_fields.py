"""TemplateFields: what turns a conversation into a prompt; chat bodies and /tokenize share it."""

from __future__ import annotations

from typing import Any

from octavo.errors import InvalidRequestError
from octavo.server.body import Body
from octavo.server.described import FunctionTools, Messages, Objects
from octavo.server.openai.messages import read_documents, read_messages, read_tools
from octavo.server.service.service import Service
from octavo.server.service.template_options import TemplateOptions
from octavo.text.truncation import Truncation


class TemplateFields(Body):
    """messages and the switches of the chat template.

    chat_template       Jinja source instead of the server's own, where the server trusts requests with that
    documents           what the template is to show the model besides the conversation, if it knows how
    add_special_tokens  put BOS and EOS around as for a plain text, unless the template has
    """

    messages: Messages
    tools: FunctionTools = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    chat_template: str | None = None
    documents: Objects = None
    add_special_tokens: bool | None = None


def template_options(body: TemplateFields) -> TemplateOptions:
    """The switches that the body sets. Raises InvalidRequestError for two that exclude each other."""
    continues = bool(body.continue_final_message)
    if body.add_generation_prompt and continues:
        raise InvalidRequestError(
            "add_generation_prompt and continue_final_message exclude each other", param="continue_final_message"
        )
    return TemplateOptions(
        add_generation_prompt=body.add_generation_prompt is not False and not continues,
        continue_final_message=continues,
        kwargs=body.chat_template_kwargs,
        documents=read_documents(body.documents),
        source=body.chat_template,
        add_special_tokens=bool(body.add_special_tokens),
    )


def messages_and_tools(body: TemplateFields, service: Service) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The body's messages and tools, checked. Raises InvalidRequestError naming the place."""
    messages = read_messages(body.messages, template_knows_developer=service.template_knows_developer)
    return messages, [] if body.tools is None else read_tools(body.tools)


async def encode_messages(
    body: TemplateFields, service: Service, max_tokens: int, truncation: Truncation | None = None
) -> list[int]:
    """Token ids of the conversation, which may be refused early when there are clearly more than max_tokens."""
    messages, tools = messages_and_tools(body, service)
    return await service.encode_chat(messages, max_tokens, tools, template_options(body), truncation)
