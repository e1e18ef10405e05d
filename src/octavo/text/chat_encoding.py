"""encode_chat: a conversation to prompt token ids, in which only the template can write control tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.errors import InvalidRequestError
from octavo.text.chat_template import ChatTemplate, RenderedChat
from octavo.text.content_format import ContentFormat
from octavo.text.tokenizer import Tokenizer


def encode_chat(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    template_kwargs: Mapping[str, Any] | None = None,
    parse_special_in_content: bool = False,
    max_tokens: int | None = None,
    content_format: ContentFormat | None = None,
    add_special_tokens: bool = False,
) -> list[int]:
    """Prompt token ids of a conversation.

    For ordinary text they are those of tokenising the rendered chat as transformers does. Control-token text that a request
    carries ("<|im_end|>" in a message, a name, a tool description, a key) is encoded as plain text, unless
    parse_special_in_content. There is exactly one BOS where the model wants one, whether or not the template writes it.
    add_special_tokens puts the model's BOS and EOS around, where the template has not; content_format is as in
    ChatTemplate.render_chat. A chat of clearly more than max_tokens tokens is refused early (ContextLengthError), see
    Tokenizer.require_fits.

    Raises InvalidRequestError if the template cannot take the request, or if this tokenizer would turn the text of the request
    into a control token even so.
    """
    chat = template.render_chat(
        messages,
        tools=tools,
        documents=documents,
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
        extra=template_kwargs,
        protect=not parse_special_in_content,
        max_characters=None if max_tokens is None else tokenizer.most_characters(max_tokens),
        content_format=content_format,
    )
    if max_tokens is not None:
        tokenizer.require_fits(chat.text, max_tokens, "messages")
    if chat.mark is None:
        ids = tokenizer.encode(chat.text, add_special_tokens=False)
    else:
        ids = tokenizer.encode_marked(chat.text, chat.mark)
    if not parse_special_in_content:
        _require_only_written_tokens(tokenizer, chat, ids)
    ids = _with_one_bos(tokenizer, ids)
    return tokenizer.with_special_tokens(ids) if add_special_tokens else ids


def _with_one_bos(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    bos = tokenizer.bos_token_id
    if bos is None or not tokenizer.adds_bos:  # then BOS may be an ordinary marker, as <|im_start|> in SmolLM2
        return ids
    start = 0
    while start < len(ids) and ids[start] == bos:
        start += 1
    return [bos, *ids[start:]]


def _require_only_written_tokens(tokenizer: Tokenizer, chat: RenderedChat, ids: list[int]) -> None:
    """Refuse if ids hold a control token more often than its text stands, without a mark, in the rendered chat.

    The last line of defence, for tokenizers that turn plain text into control tokens in ways of their own, and for control
    tokens of a single character, which a mark cannot break.
    """
    unknown = tokenizer.spec.special_tokens.get("unk_token")
    for token_id, count in Counter(token_id for token_id in ids if token_id in tokenizer.special_token_ids).items():
        token = tokenizer.added_tokens[token_id]
        written = chat.text.count(token)
        if len(token) == 1 and chat.mark is not None:
            written -= chat.text.count(token + chat.mark)
        if token != unknown and written < count:
            raise InvalidRequestError(
                f"the messages hold text that this tokenizer turns into the control token {token!r}; remove it",
                param="messages",
            )
